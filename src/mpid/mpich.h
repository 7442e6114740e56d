/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_MPICH_H
#define MDAPL_MPICH_H
/*
 * What is called differently in the releases of MPICH that the channel is built in, 4.0 to 5.0, and
 * the only place that looks at the release. docs/versions.md lists what else has changed and makes
 * no difference to the sources.
 */
#include "mpidimpl.h"

#define MDAPL_MPICH(major, minor) (MPICH_NUMVERSION >= (major) * 10000000 + (minor) * 100000)

/* -- datatypes -------------------------------------------------------------------------------- */

/* From 5.0 on MPICH's own calls take types of fixed sizes in place of MPI's predefined ones. */
#if MDAPL_MPICH(5, 0)
#define MDAPL_BYTE MPIR_BYTE_INTERNAL
#define MDAPL_2INT MPIR_2INT32
#else
#define MDAPL_BYTE MPI_BYTE
#define MDAPL_2INT MPI_2INT
#endif

#if MDAPL_MPICH(4, 1)
#define MDAPL_TYPEREP_FLAGS , MPIR_TYPEREP_FLAG_NONE
#else
#define MDAPL_TYPEREP_FLAGS
#endif

static inline int mdapl_mpich_pack(const void *buf, MPI_Aint count, MPI_Datatype type, MPI_Aint at,
                                   void *to, MPI_Aint most, MPI_Aint *packed_p)
{
    return MPIR_Typerep_pack(buf, count, type, at, to, most, packed_p MDAPL_TYPEREP_FLAGS);
}

static inline int mdapl_mpich_unpack(const void *from, MPI_Aint len, void *buf, MPI_Aint count,
                                     MPI_Datatype type, MPI_Aint at, MPI_Aint *unpacked_p)
{
    return MPIR_Typerep_unpack(from, len, buf, count, type, at, unpacked_p MDAPL_TYPEREP_FLAGS);
}

/* -- collective operations -------------------------------------------------------------------- */

/* Their last argument: until 4.1 what says afterwards whether a message of theirs has failed, in
 * 4.2 and 4.3 whether something had failed before, later a set of attributes. */
#if MDAPL_MPICH(5, 0)
typedef int mdapl_mpich_coll;
#define MDAPL_COLL_START 0
#define MDAPL_COLL_LAST(coll) (coll)
#else
typedef MPIR_Errflag_t mdapl_mpich_coll;
#define MDAPL_COLL_START MPIR_ERR_NONE
#if MDAPL_MPICH(4, 2)
#define MDAPL_COLL_LAST(coll) (coll)
#else
#define MDAPL_COLL_LAST(coll) &(coll)
#endif
#endif

static inline int mdapl_mpich_coll_end(int mpi_errno, mdapl_mpich_coll coll)
{
    if (mpi_errno == MPI_SUCCESS && coll != MDAPL_COLL_START)
        MPIR_ERR_SET(mpi_errno, MPI_ERR_OTHER, "**coll_fail");
    return mpi_errno;
}

/* Each rank has its `each` bytes of all[] in place, and gets those of the others. */
static inline int mdapl_mpich_allgather(void *all, size_t each, MPIR_Comm *comm)
{
    mdapl_mpich_coll coll = MDAPL_COLL_START;
    int mpi_errno = MPIR_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (MPI_Aint)each,
                                   MDAPL_BYTE, comm, MDAPL_COLL_LAST(coll));

    return mdapl_mpich_coll_end(mpi_errno, coll);
}

/* From rank 0. */
static inline int mdapl_mpich_bcast(void *buf, size_t len, MPIR_Comm *comm)
{
    mdapl_mpich_coll coll = MDAPL_COLL_START;
    int mpi_errno = MPIR_Bcast(buf, (MPI_Aint)len, MDAPL_BYTE, 0, comm, MDAPL_COLL_LAST(coll));

    return mdapl_mpich_coll_end(mpi_errno, coll);
}

/* The pair with the lowest first int; of several, the one with the lowest second. */
static inline int mdapl_mpich_lowest(int pair[2], MPIR_Comm *comm)
{
    mdapl_mpich_coll coll = MDAPL_COLL_START;
    int mpi_errno = MPIR_Allreduce(MPI_IN_PLACE, pair, 1, MDAPL_2INT, MPI_MINLOC, comm,
                                   MDAPL_COLL_LAST(coll));

    return mdapl_mpich_coll_end(mpi_errno, coll);
}

/* Are all ranks of a communicator on this node? Releases before 5.0 know it of one by the
 * communicator of the node's ranks, which is made of it or is it. */
static inline bool mdapl_mpich_is_on_one_node(const MPIR_Comm *comm)
{
#if MDAPL_MPICH(5, 0)
    return (comm->attr & MPIR_COMM_ATTR__HIERARCHY)
           && (comm->hierarchy_flags & MPIR_COMM_HIERARCHY__SINGLE_NODE);
#else
    return comm->hierarchy_kind == MPIR_COMM_HIERARCHY_KIND__NODE
           || (comm->node_comm && comm->node_comm->local_size == comm->local_size);
#endif
}

/* Until 4.1 their error flag goes by reference, and what they return may leave it out (colls.c): an
 * error class, or 0. Later they return it. WAIT_PASS is what a receive or wait of theirs has at its
 * end. start: nothing has failed before. */
#if MDAPL_MPICH(4, 2)
typedef mdapl_mpich_coll mdapl_mpich_last;
#define MDAPL_WAIT_LAST
#define MDAPL_WAIT_PASS
static inline int mdapl_mpich_flagged(mdapl_mpich_last last)
{
    (void)last;
    return MPI_SUCCESS;
}
static inline bool mdapl_mpich_is_start(mdapl_mpich_last last)
{
    return last == MDAPL_COLL_START;
}
#else
typedef MPIR_Errflag_t *mdapl_mpich_last;
#define MDAPL_WAIT_LAST , MPIR_Errflag_t *errflag
#define MDAPL_WAIT_PASS , errflag
static inline int mdapl_mpich_flagged(mdapl_mpich_last last)
{
    return *last == MPIR_ERR_NONE ? MPI_SUCCESS : (int)*last;
}
static inline bool mdapl_mpich_is_start(mdapl_mpich_last last)
{
    return *last == MDAPL_COLL_START;
}
#endif

/* Do programs go on after failed collective operations? Not with the later releases that have
 * been tried: their launcher ends a job whose process dies, and some errors have no class. */
enum { MDAPL_COLLS_REPORT = !MDAPL_MPICH(4, 1) };

/* -- the launcher ----------------------------------------------------------------------------- */

/* The ranks that it knows to have died. From 4.2 on by a call that PMIx, too, answers at once: its
 * answer to the other one waits until somebody has put the key. MPI_SUCCESS, or there is none. */
static inline int mdapl_mpich_dead_ranks(char *list, size_t len)
{
    static const char key[] = "PMI_dead_processes";

#if MDAPL_MPICH(4, 2)
    char *text = MPIR_pmi_get_jobattr(key);

    snprintf(list, len, "%s", text ? text : "");
    MPL_free(text);
    return text ? MPI_SUCCESS : MPI_ERR_OTHER;
#else
    return MPIR_pmi_kvs_get(-1, key, list, (int)len);
#endif
}

/* -- context ids ------------------------------------------------------------------------------ */

/* What the id of a message has in MPIR_CONTEXT_SUFFIX_MASK; 4.2 has renamed it. */
#if MDAPL_MPICH(4, 2)
enum { MDAPL_CONTEXT_PT2PT = MPIR_CONTEXT_PT2PT_OFFSET,
       MDAPL_CONTEXT_COLL = MPIR_CONTEXT_COLL_OFFSET };
#else
enum { MDAPL_CONTEXT_PT2PT = MPIR_CONTEXT_INTRA_PT2PT,
       MDAPL_CONTEXT_COLL = MPIR_CONTEXT_INTRA_COLL };
#endif

/* The same of a receive, by the argument of MPID_Recv(): 4.2 has added other attributes to it. */
static inline int mdapl_mpich_context_of(int attr)
{
#ifdef MPIR_PT2PT_ATTR_CONTEXT_OFFSET
    return MPIR_PT2PT_ATTR_CONTEXT_OFFSET(attr);
#else
    return attr;
#endif
}

/* -- progress and requests -------------------------------------------------------------------- */

/* MPICH's progress hooks, from 4.3 on those of one of its interfaces or, by -1, of all. */
static inline int mdapl_mpich_run_hooks(int *moved_p)
{
#if MDAPL_MPICH(4, 3)
    return MPIR_Progress_hook_exec_all(-1, moved_p);
#else
    return MPIR_Progress_hook_exec_all(moved_p);
#endif
}

/* Blocks of MPICH's first pool of requests, at most: the array of blocks is made for so many. */
#if MDAPL_MPICH(4, 3)
enum { MDAPL_REQUEST_BLOCKS = REQUEST_NUM_BLOCKS0 };
#else
enum { MDAPL_REQUEST_BLOCKS = REQUEST_NUM_BLOCKS };
#endif

#endif
