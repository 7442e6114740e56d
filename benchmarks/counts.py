# SPDX-License-Identifier: MIT
"""Instructions of a message, send and receive and the rounds of progress between them, by callgrind: both ranks are
contexts of one process (msg_count.c), so the numbers are the same in each run and on each machine of one compiler.
The C library's memcpy is not counted; the copies of src/util are. Of the software provider by itself (dat_count.c)
everything is counted."""
import pathlib
import re
import shutil
import subprocess
import tempfile

from measure import BUILD, cell, dat_conf, die, save, say, size_name, table

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
ROW = re.compile(r"^\s*([\d,]+) \([^)]*\)\s+(\S+?):", re.M)
ROUNDS = r"^\s*([\d,]+) \([^)]*\)\s+\S*net\.c:complete_round "


# test of dat_count, link: sizes
LINKS = {"shared rings": "addr=127.0.0.1", "TCP": "addr=127.0.0.1 local=tcp"}
PROVIDER_TESTS = {("send", "shared rings"): (8, 64, 4096), ("write", "shared rings"): (8, 4096),
                  ("empty", "shared rings"): (8,), ("pong", "shared rings"): (8,), ("pong", "TCP"): (8, 4096),
                  ("empty", "TCP"): (8,)}


def annotated(out, *options):
    return subprocess.run(["callgrind_annotate", "--threshold=100", "--show=Ir", *options, out], capture_output=True,
                          text=True).stdout


def profile(work, env, *command):
    """Instructions under exchange() by source file, with all of them under "total", and those of the provider's
    complete rounds under "rounds"; None when it fails."""
    out = pathlib.Path(work) / "out"
    p = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=exchange", f"--callgrind-out-file={out}",
                        *map(str, command)], env=env, capture_output=True, text=True)
    if p.returncode != 0:
        say("failed:", *command, p.stderr.strip()[-300:])
        return None
    found = {"total": int(re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.M)[1])}
    for number, file in ROW.findall(annotated(out)):
        found[file] = found.get(file, 0) + int(number.replace(",", ""))
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


def provider_counted(test, link, size):
    """Instructions per message of the software provider: all, and those of src/softdat; None when it fails."""
    with tempfile.TemporaryDirectory() as work:
        env = dat_conf(pathlib.Path(work) / "dat.conf", {"soft0": LINKS[link]})
        files = profile(work, env, PROVIDER, test, size, COUNT)
    return files and {"total": files["total"] / (2 * COUNT), "rounds": files["rounds"] / (2 * COUNT),
                      "src/softdat": sum(n for f, n in files.items() if "src/softdat/" in f) / (2 * COUNT)}


def provider_rows(v):
    rows = []
    for (test, link), sizes in PROVIDER_TESTS.items():
        for size in sizes:
            n = provider_counted(test, link, size) or {}
            v[("provider", link, test, size)] = [n]
            say("provider,", link, test, size_name(size), n)
            rows.append([link, test, "-" if test == "empty" else size_name(size), cell(n.get("total")),
                         cell(n.get("src/softdat")), cell(n.get("rounds"))])
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
    provider = provider_rows(v)
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

Of these, complete rounds: they read the clock and the sockets after 20 us of calls that poll. Under callgrind, where
a call takes much longer than at full speed, that is after 16 calls, the fewest that there can be between two.

{table(["link", "test", "bytes", "instructions", "in src/softdat", "of these, complete rounds"], provider)}""")
