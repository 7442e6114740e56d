/* SPDX-License-Identifier: MIT */
/* The sum of all ranks, by the C++ bindings. */
#include <mpi.h>
#include <cstdio>

int main(int argc, char **argv)
{
    int rank, sum = 0;

    MPI::Init(argc, argv);
    rank = MPI::COMM_WORLD.Get_rank();
    MPI::COMM_WORLD.Allreduce(&rank, &sum, 1, MPI::INT, MPI::SUM);
    if (rank == 0)
        std::printf("of %d, sum %d\n", MPI::COMM_WORLD.Get_size(), sum);
    MPI::Finalize();
    return 0;
}
