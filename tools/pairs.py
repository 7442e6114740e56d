# SPDX-License-Identifier: MIT
"""A server and a client of dapl2-utils, run together, for tests."""
import pathlib
import subprocess
import tempfile
import time

TRIES = 5


def listening(port):
    """A condition for pair(): a process of this network namespace listens on the port."""
    def ready(log):
        rows = (r.split() for r in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
        return any(r[3] == "0A" and r[1].endswith(f":{port:04X}") for r in rows)
    return ready


def printed(text):
    """A condition for pair(): the server has printed this."""
    return lambda log: text in pathlib.Path(log.name).read_text(errors="replace")


def pair(server, client, env, ready, good, limit_s):
    """Runs a server and, as soon as ready(its log) holds, a client; good(text) checks the output of each. Returns
    whether both are good, and what both have printed. dtest and dtestx listen only after they have told their clients
    to connect: a client that is too early is refused by any provider (connection event 0x4003), so the pair is run
    again."""
    for _ in range(TRIES):
        ok, text = run_pair(server, client, env, ready, good, limit_s)
        if ok or "0x4003" not in text:
            break
    return ok, text


def becomes(ready, log, process, limit_s):
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None:
        if ready(log):
            return True
        time.sleep(0.01)
    return False


def run_pair(server, client, env, ready, good, limit_s):
    with tempfile.NamedTemporaryFile("w+") as log:
        s = subprocess.Popen(server, env=env, stdout=log, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL)
        text = ""
        try:
            there = becomes(ready, log, s, limit_s)
            c = subprocess.run(client, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, timeout=limit_s, errors="replace")
            text = c.stdout
            if good(text):
                s.wait(limit_s)
        except subprocess.TimeoutExpired as e:
            there = False
            text += (e.output or b"").decode(errors="replace") + "\n(not finished in time)"
        finally:
            s.kill()
            s.wait()
        log.seek(0)
        served = log.read()
    verdict = f"\n(server ready {there}, client good {good(text)}, server good {good(served)})"
    return there and good(text) and good(served), text + "\n-- server:\n" + served + verdict
