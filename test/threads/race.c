/* SPDX-License-Identifier: MIT */
/* Two threads of each rank that write the same variable without a lock: what test/threads/tsan has
 * to find. */
#include <mpi.h>
#include <pthread.h>
#include <stddef.h>

static long shared;

static void *unguarded(void *arg)
{
    for (long i = 0; i < 1000; i++)
        shared += i;
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    MPI_Init(&argc, &argv);
    if (pthread_create(&thread, NULL, unguarded, NULL))
        MPI_Abort(MPI_COMM_WORLD, 1);
    unguarded(NULL);
    pthread_join(thread, NULL);
    MPI_Finalize();
    return 0;
}
