# SPDX-License-Identifier: MIT
"""TAP lines of a run, and commands that end, for tests."""
import os
import signal
import subprocess


class Tap:
    """The lines of one run."""

    def __init__(self, group):
        self.group, self.count, self.failed = group, 0, 0

    def result(self, good, name, text=""):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {self.group}: {name}", flush=True)
        if not good:
            for line in text.strip().splitlines()[-25:]:
                print(f"#   | {line[:240]}", flush=True)

    def skip(self, name, why):
        self.count += 1
        print(f"ok {self.count} - {self.group}: {name} # SKIP {why}", flush=True)

    def end(self):
        print(f"1..{self.count}")
        return 1 if self.failed else 0


def limited(command, seconds, **more):
    """Its status (None: not finished) and its output; the process group is ended with it."""
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                         start_new_session=True, errors="replace", **more)
    try:
        text, _ = p.communicate(timeout=seconds)
        return p.returncode, text
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        text, _ = p.communicate()
        return None, text + f"\n(not finished after {seconds} s)"
