# SPDX-License-Identifier: MIT
"""One-sided operations between two hosts, which are network namespaces with a cable between them: ch3:dapl on the
software provider beside MPICH's ch3:nemesis of the same source, Debian's MPICH and Debian's Open MPI, all over TCP."""
from between import measured, text_of
from measure import dapl, debian, middle, plot, save
from shm import OURS, nemesis, on_ucx

SIZES = [8, 64, 1024, 8192, 65536, 1 << 20]
FIGURES = {                              # test of mpi_rma: title, sizes, unit
    "put": ("MPI_Put and MPI_Win_flush", SIZES, "us"),
    "get": ("MPI_Get and MPI_Win_flush", SIZES, "us"),
    "acc": ("MPI_Accumulate and MPI_Win_flush", SIZES, "us"),
    "fop": ("MPI_Fetch_and_op and MPI_Win_flush", [8], "us"),
    "cas": ("MPI_Compare_and_swap and MPI_Win_flush", [8], "us"),
    "put_bw": ("16 MPI_Put and one flush", SIZES, "MB/s"),
    "get_bw": ("16 MPI_Get and one flush", SIZES, "MB/s"),
    "acc_bw": ("16 MPI_Accumulate and one flush", SIZES, "MB/s"),
    "fop_bw": ("16 MPI_Fetch_and_op and one flush", [8], "MB/s"),
    "cas_bw": ("16 MPI_Compare_and_swap and one flush", [8], "MB/s"),
    "put_busy": ("The longest MPI_Put and flush while the target computes for 2 s", [8, 1 << 20], "us"),
    "get_busy": ("The longest MPI_Get and flush while the target computes for 2 s", [8, 1 << 20], "us"),
}


def all_mpis():
    """Open MPI on UCX: over TCP alone it has no windows."""
    mpis = {OURS: dapl(), "ch3:nemesis": nemesis(), **debian()}
    openmpi = mpis.pop("Debian's Open MPI", None)
    return {**mpis, "Open MPI, UCX": on_ucx(openmpi)} if openmpi else mpis


def run(reps):
    mpis = all_mpis()
    v = measured(mpis, "mpi_rma", FIGURES, "10.95.0", reps)
    save("rma", "latency in us, bandwidth in MB/s (10^6); key: MPI, test of mpi_rma, bytes", v,
         f"""# One-sided operations between two hosts

`benchmarks/run rma`: rank 0 on one host, rank 1 on the other, which are network namespaces of this machine with a cable
between them; medians of {reps} turns in which the MPIs alternate. {OURS} on the software provider, over TCP like all
others. The target waits in a barrier, but where it computes. Every number is in rma.json.

""" + text_of(v, list(mpis), FIGURES))
    plot("rma", "MPI_Get and MPI_Win_flush between two hosts", "us", SIZES,
         {t: [middle(v, (t, "get", s)) for s in SIZES] for t in mpis})
