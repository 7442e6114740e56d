# SPDX-License-Identifier: MIT
"""A rank that is late, while another one sends on: what each receive then costs, beside ch3:nemesis and Debian's
MPIs."""
import tempfile

from measure import cell, machine, middle, printed, ratio, repeat, save, table
from shm import OURS, all_mpis

ROUNDS = (1000, 10000, 100000)
LIMIT_S = 20


def points(mpis, work):
    programs = {title: mpi.compiled("mpi_late", work) for title, mpi in mpis.items()}

    def round_us(title, rounds):
        got = printed(["timeout", LIMIT_S, *mpis[title].start(3), programs[title], rounds], mpis[title].env)
        return got and got["round_us"]
    return {(title, rounds): lambda t=title, r=rounds: round_us(t, r) for rounds in ROUNDS for title in mpis}


def text_of(v, titles, reps):
    rows = []
    for rounds in ROUNDS:
        us = [middle(v, (t, rounds)) for t in titles]
        others = [x for x in us[1:] if x]
        rows.append([str(rounds), *(cell(x) for x in us), cell(ratio(us[0], min(others)) if others else None, 2)])
    return f"""# A rank that is late

`benchmarks/run late`: three ranks in shared memory, on one host of {machine()["cores"]} cores, medians of {reps} turns
in which the MPIs alternate. Rank 2 sends so many messages of 8 bytes to rank 0 before rank 1 sends its first one;
rank 0 receives one of each in turn. The time is that of such a round, from the first message of rank 1 on, us. Without
a number: the program had not ended after {LIMIT_S} s in any turn. Every number is in late.json.

The messages of rank 2 are there before their receives. CH3 keeps such messages in one list, in the order of their
arrival, in which each receive of a message of rank 1 looks through all of them; ch3:dapl has most of them wait where
nothing is looked for (src/mpid/unexpected.c).

{table(["messages that wait", *titles, f"{OURS} / best other"], rows)}"""


def run(reps):
    mpis = all_mpis()
    with tempfile.TemporaryDirectory() as work:
        v = repeat(points(mpis, work), reps, lambda: 0, 1)
    save("late", "us, of a round (benchmarks/mpi_late.c); key: MPI, messages that wait", v,
         text_of(v, list(mpis), reps))
