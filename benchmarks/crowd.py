# SPDX-License-Identifier: MIT
"""Ranks that share cores, in shared memory: what a rank that waits costs the one that has something to do, beside
Debian's MPIs. Not ch3:nemesis, whose ranks poll as those of Debian's MPICH do."""
import concurrent.futures
import contextlib
import os
import statistics
import subprocess
import tempfile

from measure import cell, dapl, machine, printed, ratio, repeat, save, table
from shm import OURS, packaged

PLACES = {           # words: number of cores, jobs at once, ranks of each, rounds, other programs that compute there
    "2 ranks on 1 core": (1, 1, 2, 500, 0),
    "8 ranks on 2 cores": (2, 1, 8, 100, 0),
    "32 ranks on 2 cores": (2, 1, 32, 20, 0),
    "64 ranks on 2 cores, beside 2 programs that compute": (2, 1, 64, 20, 2),
    "2 jobs of 2 ranks on 2 cores": (2, 2, 2, 20000, 0),
}
LIMIT_S = 30
OPERATIONS = {"ring": "MPI_Sendrecv", "all_to_all": "all to all", "barrier": "MPI_Barrier",
              "allreduce": "MPI_Allreduce"}


@contextlib.contextmanager
def computing(programs, cores):
    """So many programs compute on these cores, each in a session of its own, as those of other users are. They end by
    themselves, too, if nobody is left to end them."""
    compute = f"ulimit -t {2 * LIMIT_S}; while :; do :; done"
    found = [subprocess.Popen(["taskset", "-c", cores, "sh", "-c", compute], start_new_session=True)
             for _ in range(programs)]
    try:
        yield
    finally:
        for program in found:
            program.kill()
            program.wait()


def together(place, mpi, program):
    """The means of the jobs of a place, which run at once; None if one of them fails."""
    n_cores, jobs, ranks, rounds, programs = place
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:n_cores])
    command = ["timeout", LIMIT_S, "taskset", "-c", cores, *mpi.start(ranks), program, rounds]
    with computing(programs, cores), concurrent.futures.ThreadPoolExecutor() as pool:
        got = list(pool.map(lambda _: printed(command, mpi.env), range(jobs)))
    return {what: statistics.mean(g[what] for g in got) for what in got[0]} if all(got) else None


def points(mpis, work):
    programs = {title: mpi.compiled("mpi_crowd", work) for title, mpi in mpis.items()}
    return {(title, where): lambda at=place, m=mpi, p=programs[title]: together(at, m, p)
            for where, place in PLACES.items() for title, mpi in mpis.items()}


def middle_of(v, title, where, what):
    runs = [run[what] for run in v.get((title, where), [])]
    return statistics.median(runs) if runs else None


def place_text(v, titles, where):
    rows = []
    for word, name in OPERATIONS.items():
        us = [middle_of(v, t, where, f"{word}_us") for t in titles]
        others = [x for x in us[1:] if x]
        rows.append([name, *(f"{cell(x, 1)} / {cell(middle_of(v, t, where, f'{word}_switches'), 1)}"
                             for t, x in zip(titles, us)), cell(ratio(us[0], min(others)) if others else None, 2)])
    return f"## {where}\n\n" + table(["us / context switches of a rank", *titles, f"{OURS} / best other"], rows)


def text_of(v, titles, reps):
    return f"""# Ranks that share cores

`benchmarks/run crowd`: one host of {machine()["cores"]} cores, shared memory, medians of {reps} turns in which the MPIs
alternate. The whole job is bound to these cores (taskset), a rank to none of them; Open MPI is told --oversubscribe.
The time is that of one operation, of the slowest rank; of jobs that run at once it is the mean. Without a number: the
program had not ended after {LIMIT_S} s in any turn. Every number is in crowd.json.

Linux schedules each session as a group (autogroup): between groups a switch costs more, and sched_yield() rarely gives
the core to another one. MPICH's Hydra makes a session for each rank; built with ch3:dapl it makes a process group only
(src/mpid/subconfigure.m4). Open MPI's ranks share a session, too. Open MPI yields where a node has more ranks than
cores, whatever cores the job is bound to, so not with 2 ranks here. Where two jobs share the cores, a rank that polls
in vain sleeps; when a message wakes it on its sender's core it goes back to its own (src/shm/sleep.c), so that the
ranks of a job run at the same time.

""" + "\n".join(place_text(v, titles, where) for where in PLACES)


def run(reps):
    mpis = {OURS: dapl(), **packaged()}
    with tempfile.TemporaryDirectory() as work:
        v = repeat(points(mpis, work), reps, lambda: 0, 1)
    save("crowd", "us, and context switches of a rank, of one operation (benchmarks/mpi_crowd.c); key: MPI, place", v,
         text_of(v, list(mpis), reps))
