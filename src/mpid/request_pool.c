/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * MPICH's pool of requests: 8 in static memory, then blocks of 1024, about 850 KiB. A block's free
 * list is written when the block is made, so the ninth request that is under way costs more than
 * 200 page faults and that memory. Here MPI_Init makes the first block, with FIRST requests, which
 * are enough for most programs; those after it are as large as MPICH makes them.
 */
enum {
#ifdef MPICH_DEBUG_HANDLEALLOC
    FIRST = REQUEST_NUM_INDICES  /* its count of leaked handles takes all blocks to be full */
#else
    FIRST = 128
#endif
};

void mdapl_ch3_request_pool_make(void)
{
    MPIR_Object_alloc_t *pool = &MPIR_Request_mem[0];
    MPIR_Handle_common *taken = NULL, *req;

    /* A block is made when the free list is empty, so everything in it is taken for a moment. */
    while (pool->indirect_size == 0
           && (req = MPIR_Handle_obj_alloc_unsafe(pool, MDAPL_REQUEST_BLOCKS, FIRST))) {
        req->next = taken;
        taken = req;
    }
    while ((req = taken)) {
        taken = req->next;
        MPIR_Handle_obj_free_unsafe(pool, req, false);
    }
}

void mdapl_ch3_request_pool_visit(void (*visit)(MPIR_Request *req, const void *arg),
                                  const void *arg)
{
    MPIR_Object_alloc_t *pool = &MPIR_Request_mem[0];

    for (int i = 0; i < pool->direct_size; i++)
        visit((MPIR_Request *)pool->direct + i, arg);
    for (int block = 0; block < pool->indirect_size; block++)
        for (int i = 0; i < (block == 0 ? FIRST : REQUEST_NUM_INDICES); i++)
            visit((MPIR_Request *)pool->indirect[block] + i, arg);
}
