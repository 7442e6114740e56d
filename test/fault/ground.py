# SPDX-License-Identifier: MIT
"""What the runs of this folder share: fault.c, the adapters that it runs on, and what it prints."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))
import tap  # noqa: E402
from tap import Tap  # noqa: E402, F401

FLOOD = 2000     # messages of one exchange; there are as many exchanges as the test needs
EXCHANGE = "^fault: exchange "
LIMIT_S = 300    # against hangs: the maximum time of a job


class Ground:
    """The program, and a dat.conf with two adapters that inject faults."""

    def __init__(self, prefix, folder, seed):
        self.prefix, self.folder, self.seed = prefix, folder, seed
        self.program = folder / "fault"
        self.processes = folder / "processes"
        self.until = folder / "until"
        self.env = dict(os.environ, PATH=f"{prefix / 'bin'}:{os.environ['PATH']}", FAULT_PROCESSES=str(self.processes))

    def build(self):
        return subprocess.run([self.prefix / "bin/mpicc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", self.program,
                               HERE / "fault.c"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def launch(self, command, knobs, params):
        """A job. params: of both adapters, beside their seeds; {k} in them is 0 for the first, 1 for the second."""
        conf = self.folder / "dat.conf"
        shutil.rmtree(self.processes, ignore_errors=True)
        self.processes.mkdir()
        conf.write_text("".join(
            f"soft{k} u2.0 nonthreadsafe default {self.prefix}/lib/libdaplsoft.so daplsoft.1.0 "
            f'"seed={self.seed + k} {params.format(k=k)}" ""\n' for k in range(2)))
        env = dict(self.env, DAT_OVERRIDE=str(conf), MPIR_CVAR_DAPL_CHANNELS="dapl")
        env.update({f"MPIR_CVAR_DAPL_{k}": v for k, v in knobs.items()})
        return tap.start(command, env=env)

    def flood(self, largest):
        """The command of a rank that exchanges messages until end_flood()."""
        self.until.unlink(missing_ok=True)
        self.env["FAULT_UNTIL"] = str(self.until)
        return self.words(FLOOD, largest)

    def end_flood(self):
        self.until.touch()

    def mpiexec(self, ranks, *command):
        return [str(self.prefix / "bin/mpiexec"), "-n", str(ranks), *map(str, command)]

    def words(self, messages, largest):
        """The command of a rank."""
        return [str(self.program), str(self.seed), str(messages), str(largest)]


def finish(job):
    return tap.finish(job, LIMIT_S)


def sums(text):
    """The counters that the program prints, by name; injected among them."""
    line = re.search(r"^fault: (injected .*)$", text, re.M)
    words = line[1].split() if line else []
    return dict(zip(words[::2], map(int, words[1::2])))


def is_whole(status, text, messages):
    clean = re.search(r"^fault: (\d+) messages, \d+ bytes: 0 lost, 0 doubled, 0 reordered, 0 corrupt$", text, re.M)
    return status == 0 and clean and int(clean[1]) >= messages * 0.99


class Watched:
    """A job whose lines are read as they come."""

    def __init__(self, job):
        self.job, self.lines, self.news, self.over = job, [], threading.Condition(), False
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.job.stdout:
            with self.news:
                self.lines.append(line)
                m = re.match(r"\[rank (\d) .*?\] ch3:dapl: (.*)", line)
                if m:
                    self.note(int(m[1]), m[2])
                self.news.notify()
        with self.news:
            self.over = True
            self.news.notify()

    def note(self, rank, text):
        """A line of this rank."""

    def count(self, pattern):
        """Lines that have come so far and match."""
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    def until(self, condition):
        """Waits until it is true. False: the job has ended before."""
        with self.news:
            self.news.wait_for(lambda: self.over or condition(), LIMIT_S)
            return condition()

    def goes_on(self):
        """Two more exchanges have been made (FAULT_UNTIL). False: the job has ended."""
        more = self.count(EXCHANGE) + 2
        return self.until(lambda: self.count(EXCHANGE) >= more)

    def finish(self):
        """(status, text)"""
        self.thread.join(LIMIT_S)
        if self.thread.is_alive():
            os.killpg(self.job.pid, signal.SIGKILL)
            self.thread.join(tap.LINGER_S)
        return self.job.wait(), "".join(self.lines)


class Moving(Watched):
    """A job, and what its connections do, by rank."""

    def __init__(self, job):
        self.loaded = {0: "", 1: ""}                     # the state of its alternate path
        self.moved = {0: 0, 1: 0}                        # migrations
        self.ended = {0: 0, 1: 0}                        # connections that broke
        super().__init__(job)

    def note(self, rank, text):
        if re.search(r"alternate path of connection \d+: \w+ -> (\w+)", text):
            self.loaded[rank] = text.split()[-1]
        self.moved[rank] += "has moved from port" in text
        self.ended[rank] += " has ended: " in text

    def until_armed(self):
        return self.until(lambda: set(self.loaded.values()) == {"ARMED"})

    def until_moved(self, times):
        return self.until(lambda: min(self.moved.values()) >= times)

    def until_broken(self):
        return self.until(lambda: min(self.ended.values()) >= 1)
