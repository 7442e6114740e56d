# SPDX-License-Identifier: MIT
"""Messages between two hosts, which are network namespaces with a cable between them: ch3:dapl on the software provider
beside MPICH's ch3:nemesis of the same source, Debian's MPICH and Debian's Open MPI, all over TCP."""
import copy

from between import measured, text_of
from measure import dapl, debian, middle, plot, save
from shm import OURS, nemesis

SIZES = [1 << k for k in (3, 10, 12, 13, 14, 15, 16, 17, 18, 20)]
FIGURES = {                              # test of mpi_perf: title, sizes, unit
    "lat": ("Latency", SIZES, "us"),
    "bw": ("16 messages under way, one way", SIZES, "MB/s"),
    "bibw": ("16 messages under way, both ways", SIZES[2:], "MB/s"),
}


def announced(mpi):
    """The same with frames of 8 KiB and a rendezvous for all that is longer."""
    mpi = copy.copy(mpi)
    mpi.env = dict(mpi.env, MPIR_CVAR_DAPL_VBUF_SIZE="8192", MPIR_CVAR_DAPL_EAGER_BYTES="0")
    return mpi


def run(reps):
    mpis = {OURS: dapl(), f"{OURS}, rendezvous": announced(dapl()), "ch3:nemesis": nemesis(), **debian()}
    v = measured(mpis, "mpi_perf", FIGURES, "10.96.0", reps)
    save("messages", "latency in us, bandwidth in MB/s (10^6); key: MPI, test of mpi_perf, bytes", v,
         f"""# Messages between two hosts

`benchmarks/run messages`: rank 0 on one host, rank 1 on the other, which are network namespaces of this machine with a
cable between them; medians of {reps} turns in which the MPIs alternate. {OURS} on the software provider, over TCP like
all others, which copies each body twice where ch3:nemesis has the kernel copy it from and to the program's memory; the
second time with VBUF_SIZE=8192 EAGER_BYTES=0. Every number is in messages.json.

""" + text_of(v, list(mpis), FIGURES))
    plot("messages", "Half a round trip between two hosts", "us", SIZES,
         {t: [middle(v, (t, "lat", s)) for s in SIZES] for t in mpis})
