# SPDX-License-Identifier: MIT
"""TAP lines of a run, and commands that end, for tests."""
import os
import signal
import subprocess

LINGER_S = 20    # for what a killed job has written


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


def start(command, **more):
    """Starts it in a process group of its own, with its errors in its output."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                            start_new_session=True, errors="replace", **more)


def written(job):
    """What a job that was killed has written. A process that has left its group may hold the pipe open: that is not
    waited for."""
    try:
        text = job.communicate(timeout=LINGER_S)[0]
    except subprocess.TimeoutExpired as e:
        text = e.output or ""
    return text if isinstance(text, str) else text.decode(errors="replace")


def finish(job, seconds):
    """The status (None: not finished) and the output of what start() has started; its group is ended with it."""
    try:
        text, _ = job.communicate(timeout=seconds)
        return job.returncode, text
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        return None, written(job) + f"\n(not finished after {seconds} s)"


def limited(command, seconds, **more):
    """The status (None: not finished) and the output of a command."""
    return finish(start(command, **more), seconds)
