# SPDX-License-Identifier: MIT
"""Two hosts on one machine, for tests and benchmarks: network namespaces with a cable between them."""
import os
import subprocess


class Hosts:
    """a and b are their names for `ip netns exec`; both have their end of the cable as p0; net: the first three
    numbers of their addresses, .1 and .2. Ends with the `with` block. CalledProcessError: not allowed here."""

    def __init__(self, net):
        self.a, self.b = (f"mdapl-{os.getpid()}-{side}" for side in "ab")
        self.addr = f"{net}.1"
        for words in (f"netns add {self.a}", f"netns add {self.b}",
                      f"-n {self.a} link add p0 type veth peer name p0 netns {self.b}",
                      f"-n {self.a} addr add {net}.1/24 dev p0", f"-n {self.b} addr add {net}.2/24 dev p0",
                      f"-n {self.a} link set lo up", f"-n {self.b} link set lo up"):
            self._ip(words)
        self.cable("up")

    def _ip(self, words):
        subprocess.run(["ip", *words.split()], check=True)

    def cable(self, state):
        """Puts the cable in ("up") or pulls it ("down")."""
        for name in (self.a, self.b):
            self._ip(f"-n {name} link set p0 {state}")

    def rename(self, times):
        """Changes the other name of a's end of the cable so many times: the kernel reports each."""
        subprocess.run(["ip", "-n", self.a, "-batch", "-"], check=True, text=True,
                       input="".join(f"link set p0 alias name{n}\n" for n in range(times)))

    def on_a(self, command=()):
        return ["ip", "netns", "exec", self.a, *command]

    def __enter__(self):
        return self

    def __exit__(self, *args):
        for name in (self.a, self.b):
            subprocess.run(["ip", "netns", "del", name])
