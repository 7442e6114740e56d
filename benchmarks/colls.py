# SPDX-License-Identifier: MIT
"""Collective operations of the ranks of one host, beside ch3:nemesis and Debian's MPIs."""
import tempfile

from measure import cell, machine, middle, near_cores, printed, ratio, repeat, save, size_name, table
from shm import OURS, all_mpis

OPERATIONS = {"bcast": "MPI_Bcast", "reduce": "MPI_Reduce", "allreduce": "MPI_Allreduce",
              "allgather": "MPI_Allgather", "alltoall": "MPI_Alltoall", "sendrecv": "MPI_Sendrecv"}
SIZES = [8, 1 << 10, 4 << 10, 16 << 10, 256 << 10, 2 << 20]
SECOND = 2000           # operations of 8 bytes in a slice of two ranks
TWO, MANY = 2, 8        # ranks
LIMIT_S = 60


def rounds(ranks, size):
    """In a slice: some milliseconds."""
    return max(3, SECOND * TWO // ranks // (1 + size // 4096))


def points(mpis, work, cores):
    """Many ranks share the cores; those of both MPICHs, which poll, take some ms for each step then (crowd.md)."""
    programs = {title: mpi.compiled("mpi_colls", work) for title, mpi in mpis.items()}

    def us(title, ranks, operation, size):
        command = ["timeout", LIMIT_S, *mpis[title].start(ranks, cores if ranks == TWO else ()), programs[title]]
        return printed([*command, operation, size, rounds(ranks, size)], mpis[title].env)
    return {(title, ranks, operation, size): lambda a=(title, ranks, operation, size): us(*a)
            for ranks in (TWO, MANY) for operation in OPERATIONS for size in SIZES for title in mpis
            if ranks == TWO or not title.endswith(("MPICH", "nemesis"))}


def ranks_text(v, titles, ranks):
    titles = [t for t in titles if any((t, ranks, "bcast", size) in v for size in SIZES)]
    rows = []
    for operation, name in OPERATIONS.items():
        for size in SIZES:
            us = [middle(v, (t, ranks, operation, size)) for t in titles]
            others = [x for x in us[1:] if x]
            rows.append([name, size_name(size), *(cell(x, 2) for x in us),
                         cell(ratio(us[0], min(others)) if others else None, 2)])
    return table(["us", "bytes", *titles, f"{OURS} / best other"], rows)


def text_of(v, titles, reps):
    return f"""# Collective operations on one host

`benchmarks/run colls`: {machine()["cpu"]}, {machine()["cores"]} cores, medians of {reps} turns in which the MPIs
alternate. The time is that of one of many operations that are made one after the other, of the slowest rank; the bytes
are those from one rank to another. Sums are of doubles. Every number is in colls.json.

## {TWO} ranks, each on a core

{ranks_text(v, titles, TWO)}
## {MANY} ranks on {machine()["cores"]} cores

Not both MPICHs, whose ranks poll (crowd.md). Open MPI is told --oversubscribe.

{ranks_text(v, titles, MANY)}"""


def run(reps):
    mpis = all_mpis()
    cores, _ = near_cores()
    with tempfile.TemporaryDirectory() as work:
        v = repeat(points(mpis, work, cores), reps, lambda: 0, 1)
    save("colls", "us of an operation (benchmarks/mpi_colls.c); key: MPI, ranks, operation, bytes", v,
         text_of(v, list(mpis), reps))
