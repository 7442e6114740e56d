// SPDX-License-Identifier: MIT
/*
 * A program in C++ by MPI's C++ bindings: a message around the ranks, a reduction with an operation
 * of its own, a derived communicator, and an error as an exception. Prints "rank N: ok".
 */
#include <cstdio>
#include <vector>

#include <mpi.h>

namespace
{

void
maximum(const void *in, void *inout, int n, const MPI::Datatype &)
{
    const int *a = static_cast<const int *>(in);
    int *b = static_cast<int *>(inout);

    for (int i = 0; i < n; i++)
        b[i] = a[i] > b[i] ? a[i] : b[i];
}

// A message of 100,000 numbers to the next rank: has the one before sent its own?
bool
ring(const MPI::Intracomm &comm)
{
    const int rank = comm.Get_rank(), size = comm.Get_size(), before = (rank + size - 1) % size;
    std::vector<int> out(100000, rank), in(100000, -1);
    MPI::Status status;

    comm.Sendrecv(out.data(), 100000, MPI::INT, (rank + 1) % size, 7, in.data(), 100000, MPI::INT,
                  MPI::ANY_SOURCE, 7, status);
    return in.front() == before && in.back() == before && status.Get_source() == before;
}

bool
reduced(const MPI::Intracomm &comm)
{
    MPI::Op op;
    int mine = comm.Get_rank(), most = -1;

    op.Init(maximum, true);
    comm.Allreduce(&mine, &most, 1, MPI::INT, op);
    op.Free();
    return most == comm.Get_size() - 1;
}

bool
thrown(const MPI::Intracomm &comm)
{
    MPI::Intracomm other = comm.Dup();
    bool caught = false;

    other.Set_errhandler(MPI::ERRORS_THROW_EXCEPTIONS);
    try {
        other.Send(nullptr, 0, MPI::INT, other.Get_size() + 1, 0);
    } catch (MPI::Exception &e) {
        caught = e.Get_error_class() == MPI::ERR_RANK;
    }
    other.Free();
    return caught;
}

} // namespace

int
main(int argc, char **argv)
{
    MPI::Init(argc, argv);
    const int rank = MPI::COMM_WORLD.Get_rank();
    const bool good = ring(MPI::COMM_WORLD) && reduced(MPI::COMM_WORLD) && thrown(MPI::COMM_WORLD);

    std::printf("rank %d: %s\n", rank, good ? "ok" : "wrong");
    MPI::Finalize();
    return !good;
}
