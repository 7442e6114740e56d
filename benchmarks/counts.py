# SPDX-License-Identifier: MIT
"""Instructions of a message, send and receive and the rounds of progress between them, by callgrind: both ranks are
contexts of one process (msg_count.c), so the numbers are the same in each run and on each machine of one compiler.
The C library's memcpy is not counted; the copies of src/util are. Of providers by themselves (dat_count.c)
everything is counted: of the software provider, and of the verbs providers on the stand-in of test/verbs."""
import pathlib
import re
import shutil
import subprocess
import tempfile

from measure import BUILD, cell, dat_conf, die, save, say, size_name, table
from standin import Ground, ias

PROGRAM = BUILD / "benchmarks/msg_count"
PROVIDER = BUILD / "benchmarks/dat_count"
COUNT = 200             # messages each way
ROOMS = ("src/shm", "src/dapl", "src/util")
SHORT, LONG = (8, 4096), (65536,)
# name: sizes, channel, knobs
WAYS = {
    "shm": (SHORT, "shm"),
    "dapl, send/receive": (SHORT, "dapl", "ring=off", "reg_cache=off"),
    "dapl, ring": (SHORT, "dapl", "ring=on", "ring_after=1", "reg_cache=off"),
    "dapl, two rails": (SHORT, "dapl", "ring=off", "reg_cache=off", "ia=fake,fake"),
    "dapl, rget": (LONG, "dapl", "rndv=rget", "reg_cache=off"),
    "dapl, rput": (LONG, "dapl", "rndv=rput", "reg_cache=off"),
    "dapl, copy": (LONG, "dapl", "rndv=copy", "reg_cache=off"),
}
# instructions, file and function, and the object where that is not the program itself
ROW = re.compile(r"^\s*([\d,]+) \([^)]*\)\s+(\S+?):.*?(?:\[(\S+)\])?$", re.M)
ROUNDS = r"^\s*([\d,]+) \([^)]*\)\s+\S*net\.c:complete_round "


COLUMNS = ("src/softdat", "libdat2", "libc", "program", "total", "rounds")
# link: parameters of the adapter, ns of a dequeue at full speed
LINKS = {"shared rings": ("addr=127.0.0.1", 80), "TCP": ("addr=127.0.0.1 local=tcp", 1000)}
# test of dat_count, link: sizes
PROVIDER_TESTS = {("send", "shared rings"): (8, 64, 4096), ("write", "shared rings"): (8, 4096),
                  ("empty", "shared rings"): (8,), ("pong", "shared rings"): (8,), ("pong", "TCP"): (8, 4096),
                  ("empty", "TCP"): (8,)}
# test of dat_count, on each of the verbs providers: sizes
VERBS_TESTS = {"send": (8, 4096), "write": (8, 4096), "empty": (8,)}
VERBS = {"own": ("libdaplverbs", r"src/verbsdat/|infiniband/verbs\.h"), "ofa": ("libdaplofa", "/libdaplofa"),
         "scm": ("libdaploscm", "/libdaploscm")}
VERBS_COLUMNS = ("the provider", "libdat2", "libc", "the stand-in", "total")
VERBS_NS = 80


def annotated(out, *options):
    return subprocess.run(["callgrind_annotate", "--threshold=100", "--show=Ir", *options, out], capture_output=True,
                          text=True).stdout


def profile(work, env, *command):
    """Instructions under exchange() by source file and by library, with all of them under "total", and those of the
    provider's complete rounds under "rounds"; None when it fails."""
    out = pathlib.Path(work) / "out"
    p = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=exchange", f"--callgrind-out-file={out}",
                        *map(str, command)], env=env, capture_output=True, text=True)
    if p.returncode != 0:
        say("failed:", *command, p.stderr.strip()[-300:])
        return None
    found = {"total": int(re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.M)[1])}
    for number, *names in ROW.findall(annotated(out)):
        for name in filter(None, names):
            found[name] = found.get(name, 0) + int(number.replace(",", ""))
    rounds = re.search(ROUNDS, annotated(out, "--inclusive=yes"), re.M)
    found["rounds"] = int(rounds[1].replace(",", "")) if rounds else 0
    return found


def counted(way, size):
    """Instructions per message by room; None when it fails."""
    with tempfile.TemporaryDirectory() as work:
        conf = pathlib.Path(work) / "dat.conf"
        conf.write_text('fake u2.0 nonthreadsafe default /nowhere/libnone.so none.1.0 "" ""\n')
        _, channel, *knobs = WAYS[way]
        files = profile(work, {"DAT_OVERRIDE": str(conf)}, PROGRAM, channel, size, COUNT, *knobs)
    rooms = dict.fromkeys(ROOMS, 0)
    for file, number in (files or {}).items():
        room = next((r for r in ROOMS if f"{r}/" in file), None)
        if room:
            rooms[room] += number
    return files and {room: n / (2 * COUNT) for room, n in rooms.items() if n}


def parts_of(files, more):
    """Instructions per message by who executes them, {part: a pattern of its files}; None of None."""
    parts = {"total": "^total$", "libdat2": "/libdat2", "libc": r"/libc\.so", **more}
    return files and {part: sum(n for f, n in files.items() if re.search(name, f)) / (2 * COUNT)
                      for part, name in parts.items()}


def provider_counted(test, link, size):
    """Instructions per message of the software provider: all, and by who executes them; None when it fails."""
    params, ns = LINKS[link]
    with tempfile.TemporaryDirectory() as work:
        env = dat_conf(pathlib.Path(work) / "dat.conf", {"soft0": params})
        files = profile(work, env, PROVIDER, test, size, COUNT, ns)
    return parts_of(files, {"src/softdat": "src/softdat/", "program": "benchmarks/dat_count.c", "rounds": "rounds"})


def provider_rows(v):
    rows = []
    for (test, link), sizes in PROVIDER_TESTS.items():
        for size in sizes:
            n = provider_counted(test, link, size) or {}
            v[("provider", link, test, size)] = [n]
            say("provider,", link, test, size_name(size), n)
            rows.append([link, test, "-" if test == "empty" else size_name(size)]
                        + [cell(n.get(part)) for part in COLUMNS])
    return rows


def verbs_rows(v):
    """Of the verbs providers on the stand-in, each with a ground of its own."""
    rows = []
    lines = ias(BUILD / ".libs/libdaplverbs.so")
    for ia, (title, files) in VERBS.items():
        with tempfile.TemporaryDirectory() as folder:
            ground = Ground(folder, {"soft0": lines[ia]})
            good, text = ground.build()
            if not good:
                die("the stand-in is not built:", text)
            for test, size in ((test, size) for test, sizes in VERBS_TESTS.items() for size in sizes):
                found = profile(folder, ground.env(), PROVIDER, test, size, COUNT, VERBS_NS)
                n = parts_of(found, {"the provider": files, "the stand-in": "/libhv"}) or {}
                v[("verbs", title, test, size)] = [n]
                say(title, test, size_name(size), n)
                rows.append([title, test, "-" if test == "empty" else size_name(size),
                             *(cell(n.get(part)) for part in VERBS_COLUMNS)])
    return rows


def run(_reps):
    if not PROGRAM.exists():
        die(f"no {PROGRAM}: ./check unit builds it")
    if not shutil.which("valgrind"):
        die("valgrind is not installed")
    v, rows = {}, []
    for way, (sizes, *_) in WAYS.items():
        for size in sizes:
            rooms = counted(way, size) or {}
            v[(way, size)] = [rooms]
            say(way, size_name(size), rooms)
            rows.append([way, size_name(size), cell(sum(rooms.values()) if rooms else None)]
                        + [cell(rooms.get(r)) for r in ROOMS])
    provider, verbs = provider_rows(v), verbs_rows(v)
    save("counts", "instructions of a message by room; key: way, bytes", v, f"""# Instructions of a message

`benchmarks/run counts`: {COUNT} messages each way between two contexts of one process, callgrind; send, receive, and
the rounds of progress between them. The channel dapl is on the fake provider, whose instructions are not counted; nor
is the C library's memcpy, while the copies of src/util are.

{table(["way", "bytes", "instructions"] + [f"in {r}" for r in ROOMS], rows)}
## The software provider

{COUNT} messages each way between two adapters of one process, which take turns polling. `send`: a
post of a receive, a post of a send, the dequeues of both completions and every poll between them. `pong`: the same, but
each send is posted by the side that has just received, so it carries the acknowledgement. `write`: an RDMA
write, polls of the target until its last byte is there, the dequeue of the completion. `empty`: a dequeue of an empty
queue. Everything is counted, also the program, libdat2 and the C library.

Of these, complete rounds: they read the clock, and the sockets after 20 us of calls that poll. Time is virtual: a
dequeue takes {LINKS["shared rings"][1]} ns over rings and {LINKS["TCP"][1]} ns over TCP, about as at full speed.

{table(["link", "test", "bytes", "in src/softdat", "libdat2", "C library", "program", "all",
        "of these, complete rounds"], provider)}
## The verbs providers

The same, with libdaplverbs and Debian's own providers on the library that stands in for libibverbs and librdmacm
(test/verbs). What that does in place of an adapter is the same for all: its instructions, and those of its lock between
processes, which are in the C library. The rest of the C library are the provider's locks, and memcpy.

{table(["provider", "test", "bytes", "in the provider", "libdat2", "C library", "the stand-in", "all"], verbs)}""")
