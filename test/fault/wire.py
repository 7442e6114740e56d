# SPDX-License-Identifier: MIT
"""Two hosts, which are network namespaces of this machine, and the cables between them, which are veth pairs."""
import os
import shlex
import subprocess
import time

from ground import HERE, LIMIT_S

ENTER = str(HERE.parent / "hosts/enter")


def ip(*words):
    return subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Wire:
    """Cable k is the interface mdaplK at both ends, with the addresses 10.79.K.1 and 10.79.K.2."""

    def __init__(self, cables=1):
        self.host = [f"mdaplF{os.getpid()}{k}" for k in "ab"]
        self.cables = cables

    @staticmethod
    def dev(cable=0):
        return f"mdapl{cable}"

    @staticmethod
    def address(end, cable=0):
        return f"10.79.{cable}.{end + 1}"

    def make(self):
        """Returns why there are none, or an empty text."""
        steps = [("netns", "add", host) for host in self.host]
        steps += [("-n", host, "link", "set", "lo", "up") for host in self.host]
        for k in range(self.cables):
            dev = self.dev(k)
            steps.append(("link", "add", dev, "netns", self.host[0], "type", "veth", "peer", "name", dev, "netns",
                          self.host[1]))
            for end, host in enumerate(self.host):
                steps += [("-n", host, "addr", "add", f"{self.address(end, k)}/24", "dev", dev),
                          ("-n", host, "link", "set", dev, "up")]
        for step in steps:
            done = ip(*step)
            if done.returncode:
                return f"ip {' '.join(step)}: {done.stdout.strip()}"
        return ""

    def remove(self):
        for host in self.host:
            ip("netns", "del", host)

    def is_up(self):
        """Does each end of each cable have its carrier? The kernel takes its time to see one."""
        return all("state UP" in ip("-n", host, "-o", "link", "show", "dev", self.dev(k)).stdout
                   for host in self.host for k in range(self.cables))

    def settle(self):
        """Waits until all cables work."""
        until = time.monotonic() + LIMIT_S
        while not self.is_up() and time.monotonic() < until:
            time.sleep(0.01)

    def pull(self, fault, cable=0, end=0):
        """The fault begins: the cable is out at this end, or what goes back to it by "route" is swallowed."""
        if fault == "cable":
            ip("-n", self.host[end], "link", "set", self.dev(cable), "down")
        else:
            ip("-n", self.host[1 - end], "route", "add", "blackhole", f"{self.address(end, cable)}/32")

    def mend(self, fault, cable=0, end=0):
        if fault == "cable":
            ip("-n", self.host[end], "link", "set", self.dev(cable), "up")
        else:
            ip("-n", self.host[1 - end], "route", "del", "blackhole", f"{self.address(end, cable)}/32")

    def start(self, ground, words, knobs, params, control=0):
        """Starts a job with one rank on each host; the launcher uses the cable `control`."""
        command = [str(ground.prefix / "bin/mpiexec"), "-launcher", "ssh", "-launcher-exec", ENTER,
                   "-iface", self.dev(control), "-hosts", ",".join(f"{h}:1" for h in self.host), "-n", "2", *words]
        return ground.launch([ENTER, self.host[0], shlex.join(command)], knobs, params)
