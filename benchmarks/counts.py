# SPDX-License-Identifier: MIT
"""Instructions of a message, send and receive and the rounds of progress between them, by callgrind: both ranks are
contexts of one process (msg_count.c), so the numbers are the same in each run and on each machine of one compiler.
The C library's memcpy is not counted; the copies of src/util are."""
import pathlib
import re
import shutil
import subprocess
import tempfile

from measure import BUILD, cell, die, save, say, size_name, table

PROGRAM = BUILD / "benchmarks/msg_count"
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


def counted(way, size):
    """Instructions per message by room; None when it fails."""
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work) / "out"
        conf = pathlib.Path(work) / "dat.conf"
        conf.write_text('fake u2.0 nonthreadsafe default /nowhere/libnone.so none.1.0 "" ""\n')
        _, channel, *knobs = WAYS[way]
        p = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=exchange", f"--callgrind-out-file={out}",
                            PROGRAM, channel, str(size), str(COUNT), *knobs], env={"DAT_OVERRIDE": str(conf)},
                           capture_output=True, text=True)
        if p.returncode != 0:
            say("failed:", way, size, p.stderr.strip()[-300:])
            return None
        text = subprocess.run(["callgrind_annotate", "--threshold=100", "--show=Ir", out], capture_output=True,
                              text=True).stdout
    rooms = dict.fromkeys(ROOMS, 0)
    for number, file in ROW.findall(text):
        room = next((r for r in ROOMS if f"{r}/" in file), None)
        if room:
            rooms[room] += int(number.replace(",", ""))
    return {room: n / (2 * COUNT) for room, n in rooms.items() if n}


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
    save("counts", "instructions of a message by room; key: way, bytes", v, f"""# Instructions of a message

`benchmarks/run counts`: {COUNT} messages each way between two contexts of one process, callgrind; send, receive, and
the rounds of progress between them. The channel dapl is on the fake provider, whose instructions are not counted; nor
is the C library's memcpy, while the copies of src/util are.

{table(["way", "bytes", "instructions"] + [f"in {r}" for r in ROOMS], rows)}""")
