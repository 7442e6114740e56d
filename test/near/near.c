/* SPDX-License-Identifier: MIT */
/*
 * near WHAT RANK: an MPI program in which one rank and the others reach each other in one direction
 * only, through shared memory.
 *
 *   dump   nobody may look into that rank: it is not dumpable
 *   map    that rank finds no address space for the others' segments
 *   none   all is well
 *
 * Then a ring, and a broadcast of 1 MiB.
 */
#define _GNU_SOURCE
#include "../lines.h"

#include <mpi.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEN = 1 << 20 };

static int no_space;
static ino_t mine;               /* the segment that this process has made */

/* These two stand before the C library's, for the MPI library as well. */
int memfd_create(const char *name, unsigned flags)
{
    int fd = (int)syscall(SYS_memfd_create, name, flags);
    struct stat st;

    if (fd >= 0 && strcmp(name, "mdapl") == 0 && fstat(fd, &st) == 0)
        mine = st.st_ino;
    return fd;
}

static int of_another(int fd)
{
    char path[64], target[64] = "";
    struct stat st;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "/memfd:mdapl ")
           && fstat(fd, &st) == 0 && st.st_ino != mine;
}

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
    if (no_space && fd >= 0 && (flags & MAP_SHARED) && of_another(fd)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, off);
}

int main(int argc, char **argv)
{
    const char *me = getenv("PMI_RANK");
    int rank, size, from = -1;
    char *buf = malloc(LEN);

    if (argc == 3 && me && strcmp(me, argv[2]) == 0) {
        no_space = strcmp(argv[1], "map") == 0;
        if (strcmp(argv[1], "dump") == 0)
            prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    MPI_Init(&argc, &argv);
    print_whole_lines();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &from, 1, MPI_INT,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    memset(buf, rank == 0 ? 'x' : 0, LEN);
    MPI_Bcast(buf, LEN, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (from == (rank + size - 1) % size && buf[0] == 'x' && memcmp(buf, buf + 1, LEN - 1) == 0)
        printf("rank %d is right\n", rank);
    MPI_Finalize();
    free(buf);
    return 0;
}
