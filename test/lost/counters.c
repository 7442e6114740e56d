/* SPDX-License-Identifier: MIT */
/*
 * counters: MPI_T reads every counter of the channel, in MPI and after MPI_Finalize, when it must
 * not have become less. Prints "counters: ok".
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 256 };

static struct {
    MPI_T_pvar_handle handle[MOST];
    unsigned long long value[MOST];
    int n;
} counter;

static MPI_T_pvar_session session;

static void find_counters(void)
{
    int n;

    MPI_T_pvar_get_num(&n);
    for (int i = 0; i < n && counter.n < MOST; i++) {
        char name[128] = "", desc[512];
        int name_len = sizeof(name), desc_len = sizeof(desc), verbosity, class, bind, readonly;
        int continuous, atomic, count;
        MPI_Datatype type;
        MPI_T_enum values;

        MPI_T_pvar_get_info(i, name, &name_len, &verbosity, &class, &type, &values, desc, &desc_len,
                            &bind, &readonly, &continuous, &atomic);
        if (strncmp(name, "dapl_", 5) == 0 && type == MPI_UNSIGNED_LONG_LONG
            && MPI_T_pvar_handle_alloc(session, i, NULL, &counter.handle[counter.n], &count) == 0)
            counter.n++;
    }
}

/* How many cannot be read, or have become less. */
static int read_all(void)
{
    int bad = 0;

    for (int i = 0; i < counter.n; i++) {
        unsigned long long now = 0;

        bad += MPI_T_pvar_read(session, counter.handle[i], &now) != MPI_SUCCESS;
        bad += now < counter.value[i];
        counter.value[i] = now;
    }
    return bad;
}

static unsigned long long sum(void)
{
    unsigned long long all = 0;

    for (int i = 0; i < counter.n; i++)
        all += counter.value[i];
    return all;
}

int main(int argc, char **argv)
{
    int provided, rank, size, bad, one = 1, all = 0;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    find_counters();
    for (int i = 0; i < 100; i++)
        MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    bad = read_all() + (counter.n < 20) + (size > 1 && sum() == 0);
    MPI_Finalize();
    bad += read_all() + (size > 1 && sum() == 0);
    MPI_T_finalize();
    if (rank == 0)
        printf("counters: %s\n", bad ? "wrong" : "ok");
    return bad != 0;
}
