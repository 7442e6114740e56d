# SPDX-License-Identifier: MIT
"""One-sided operations between two hosts, which are network namespaces with a cable between them: ch3:dapl on the
software provider beside MPICH's ch3:nemesis of the same source, Debian's MPICH and Debian's Open MPI, all over TCP."""
import pathlib
import shlex
import tempfile

from hosts import Hosts
from measure import TOP, across, cell, dapl, debian, keep, middle, plot, printed, ratio, save, say, size_name, table
from shm import OURS, nemesis, on_ucx

ENTER = TOP / "test/hosts/enter"
WIRE = "p0"                              # the end of the cable, on both hosts
OVER_TCP = {"UCX_TLS": "tcp,self"}       # UCX takes two hosts of one system for one, and shares memory
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


def count(test, size):
    """Operations, or sixteens of them, that take some tenths of a second."""
    each = 16 * size if test.endswith("bw") else size
    return max(10, min(2000, (64 << 20) // each))


def figure(mpi, program, hosts, test, size):
    words = [*across(mpi, ENTER, WIRE, (hosts.a, hosts.b)), program, test, size, count(test, size)]
    return printed([ENTER, hosts.a, " ".join(shlex.quote(str(w)) for w in words)], dict(mpi.env, **OVER_TCP))


def figure_text(v, titles, test):
    title, sizes, unit = FIGURES[test]
    rows = []
    for size in sizes:
        all_of = [middle(v, (t, test, size)) for t in titles]
        others = [x for x in all_of[1:] if x]
        best = (max if unit == "MB/s" else min)(others) if others else None
        rows.append([size_name(size), *map(cell, all_of), cell(ratio(all_of[0], best), 2)])
    return f"## {title}, {unit}\n\n" + table(["bytes", *titles, f"{OURS} / best other"], rows) + "\n"


def text_of(v, titles, reps):
    return f"""# One-sided operations between two hosts

`benchmarks/run rma`: rank 0 on one host, rank 1 on the other, which are network namespaces of this machine with a cable
between them; medians of {reps} turns in which the MPIs alternate. {OURS} on the software provider, over TCP like all
others. The target waits in a barrier, but where it computes. Every number is in rma.json.

""" + "".join(figure_text(v, titles, test) for test in FIGURES)


def all_mpis():
    """Open MPI on UCX: over TCP alone it has no windows."""
    mpis = {OURS: dapl(), "ch3:nemesis": nemesis(), **debian()}
    openmpi = mpis.pop("Debian's Open MPI", None)
    return {**mpis, "Open MPI, UCX": on_ucx(openmpi)} if openmpi else mpis


def run(reps):
    mpis = all_mpis()
    v = {}
    with tempfile.TemporaryDirectory() as work, Hosts("10.95.0") as hosts:
        pathlib.Path(work).chmod(0o755)
        programs = {title: mpi.compiled("mpi_rma", work) for title, mpi in mpis.items()}
        for rep in range(1, reps + 1):
            for test, (_, sizes, _) in FIGURES.items():
                say(f"turn {rep} of {reps}, {test}")
                for size in sizes:
                    keep(v, {(title, test, size): figure(mpi, programs[title], hosts, test, size)
                             for title, mpi in mpis.items()})
    save("rma", "latency in us, bandwidth in MB/s (10^6); key: MPI, test of mpi_rma, bytes", v,
         text_of(v, list(mpis), reps))
    plot("rma", "MPI_Get and MPI_Win_flush between two hosts", "us", SIZES,
         {t: [middle(v, (t, "get", s)) for s in SIZES] for t in mpis})
