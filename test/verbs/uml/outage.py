# SPDX-License-Identifier: MIT
"""test/fault/fault.c on two nodes while a link, a path or an adapter fails: every message arrives once and in order.
Each function makes one job, and returns whether it went well, its name, and what it printed."""
import re
import sys
import time

from uml import HERE

sys.path.insert(0, str(HERE.parents[1] / "fault"))
from ground import Moving, Watched, is_whole, sums  # noqa: E402

EXCHANGE = 500    # messages of one exchange; there are as many exchanges as the test needs
LARGEST = 65536
SECOND = "rxe1"   # the second adapter of a node, on eth2


class Flood:
    """The job. What it prints of connections is read as it comes."""

    def __init__(self, nodes, program, knobs, kind=Watched):
        self.until = program.parent / "until"
        self.until.unlink(missing_ok=True)
        env = nodes.env({"CHANNELS": "dapl", "MAX_OUTAGE_MS": "120000", **knobs}, FAULT_UNTIL=str(self.until))
        self.job = kind(nodes.start(2, [program, "1", str(EXCHANGE), str(LARGEST)], env))

    def goes_on(self, more=4):
        """So many exchanges from now on. False: the job has ended before."""
        until = self.job.count("^fault: exchange ") + more
        return self.job.until(lambda: self.job.count("^fault: exchange ") >= until)

    def said(self, pattern, times=1):
        return self.job.until(lambda: self.job.count(pattern) >= times)

    def end(self):
        """(Was every message there once, the sums of the counters, the output)."""
        self.until.touch()
        status, text = self.job.finish()
        return is_whole(status, text, EXCHANGE), sums(text), f"{text}\n(status {status})"


def note(what, n, *names):
    print(f"# {what}: " + ", ".join(f"{name} {n.get(name)}" for name in names), flush=True)


def cut(nodes, program, ia, seconds, breaks):
    """The link is cut for some seconds, and healed. breaks: connections have to break meanwhile."""
    flood = Flood(nodes, program, {"IA": ia})
    begun = flood.goes_on(3)
    nodes.ask("cut", "n2")
    time.sleep(seconds)
    nodes.ask("heal", "n2")
    goes_on = flood.goes_on()
    whole, n, text = flood.end()
    note(f"{ia}, {seconds} s", n, "breaks", "replayed_frames")
    return (begun and goes_on and whole and (not breaks or n.get("breaks", 0) > 0),
            f"{nodes.device}, {ia}: the link is cut for {seconds} s: every message once, in order",
            f"{text}\n(begun {begun}, goes on {goes_on})")


def migrate(nodes, program, ia, times, **knobs):
    """The path in use is cut, at one end or the other; healed, once the connections have moved; then the other one.
    Without the device's own verdicts on silent connections, and with paths that are loaded again after a second: when
    the device moves a connection that the kernel has moved, it is back on the path that is cut."""
    streams = int(knobs.get("STREAMS", 1))
    flood = Flood(nodes, program, {"IA": ia, "VERBOSE": "2", "PATH_QUIET_MS": "1000", "DEAD_MS": "0", **knobs}, Moving)
    done = 0
    while done < times and flood.said("alternate path of connection .* -> ARMED", 2 * streams * (done + 1)):
        link = "n1" if done % 4 < 2 else "n2", f"path{done % 2 + 1}"
        nodes.ask("cut", *link)
        moved = flood.job.until_moved(streams * (done + 1))
        goes_on = flood.goes_on()
        nodes.ask("heal", *link)
        if not moved or not goes_on:
            break
        done += 1
    whole, n, text = flood.end()
    note(f"{ia}, {done} migrations of {streams} connections", n, "path_migrated", "path_failed", "breaks")
    return (whole and done == times and n.get("path_migrated") == 2 * streams * times and n.get("path_failed") == 0
            and n.get("breaks") == 0 and n.get("reconnects") == 0,
            f"{nodes.device}, {ia}: the path in use is cut {times} times under {streams} connections: they migrate, "
            "counted at both ends, none breaks; every message once, in order", text)


def lose(nodes, program, ias, node):
    """A node's second adapter is removed while in use, and comes back."""
    for n in ("n1", "n2"):
        nodes.on(n, f"rdma link add {SECOND} type {nodes.device} netdev eth2")
    flood = Flood(nodes, program, {"IA": ias, "VERBOSE": "1"})
    begun = flood.goes_on(3)
    removed = nodes.on(node, f"timeout 60 rdma link del {SECOND}")
    failed = flood.said(r"IA \w+: the adapter failed")
    goes_on = flood.goes_on()
    back = nodes.on(node, f"rdma link add {SECOND} type {nodes.device} netdev eth2")
    opened = flood.said(r"IA \w+ is open again") and flood.goes_on()
    whole, n, text = flood.end()
    note(f"{ias} without {SECOND} of {node}", n, "breaks", "replayed_frames", "ia_reopens")
    for k in ("n1", "n2"):
        nodes.on(k, f"timeout 60 rdma link del {SECOND}")
    return (begun and removed[0] == 0 and failed and goes_on and back[0] == 0 and opened and whole
            and n.get("breaks", 0) > 0 and n.get("ia_reopens") == 1,
            f"{nodes.device}, {ias}: an adapter of {node} is removed and comes back: every message once, in order",
            f"{text}\n(begun {begun}, removed {removed}, failed {failed}, goes on {goes_on}, back {back}, "
            f"opened {opened})")
