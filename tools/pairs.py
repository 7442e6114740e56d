# SPDX-License-Identifier: MIT
"""A server and a client of dapl2-utils, run together, for tests."""
import contextlib
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

ADDRESS_BYTES = 128    # of the text that a server of dtest or dtestx sends to its client


def listening(port):
    """A condition for pair(): a process of this network namespace listens on the port."""
    def ready(log):
        rows = (r.split() for r in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
        return any(r[3] == "0A" and r[1].endswith(f":{port:04X}") for r in rows)
    return ready


def printed(text):
    """A condition for pair(): the server has printed this."""
    return lambda log: text in pathlib.Path(log.name).read_text(errors="replace")


def pair(server, client, env, ready, good, limit_s, announced=None, ends=True):
    """Runs a server and, as soon as ready(its log) holds, a client; good(text) checks the output of each. Returns
    whether both are good, and what both have printed.

    announced: a TCP port at which the server gives its address to a client before it listens for connections, as dtest
    and dtestx do. A client that reads it there may connect too early and is then refused by any provider. So it reads
    the address from a Relay, which this function opens when ready(log) holds.

    ends: False for a server that may not end by itself. It is ended as soon as its output is good."""
    if not ends:
        server = ["stdbuf", "-oL", *server]    # else what it has printed would be lost
    with tempfile.NamedTemporaryFile("w+") as log, contextlib.ExitStack() as stack:
        s = subprocess.Popen(server, env=env, stdout=log, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL)
        text = ""
        try:
            address = announced and announcement(announced, log, s, limit_s)
            there = becomes(ready, log, s, limit_s)
            if address:
                stack.enter_context(Relay(announced, address, limit_s))
            c = subprocess.run(client, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, timeout=limit_s, errors="replace")
            text = c.stdout
            if good(text) and ends:
                s.wait(limit_s)
            elif good(text):
                becomes(lambda log: good(pathlib.Path(log.name).read_text(errors="replace")), log, s, limit_s)
        except (subprocess.TimeoutExpired, OSError) as e:
            there = False
            text += (getattr(e, "output", None) or b"").decode(errors="replace") + f"\n({e})"
        finally:
            s.kill()
            s.wait()
        log.seek(0)
        served = log.read()
    verdict = f"\n(server ready {there}, client good {good(text)}, server good {good(served)})"
    return there and good(text) and good(served), text + "\n-- server:\n" + served + verdict


def becomes(ready, log, process, limit_s):
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None:
        if ready(log):
            return True
        time.sleep(0.01)
    return False


def announcement(port, log, process, limit_s):
    """Returns the address that the server gives at that port, b"" if it ends before. A dtestx server wants its client's
    address as well, which is the same: both use one adapter."""
    if not becomes(listening(port), log, process, limit_s):
        return b""
    with socket.create_connection(("127.0.0.1", port), limit_s) as s:
        address = s.recv(ADDRESS_BYTES, socket.MSG_WAITALL)
        with contextlib.suppress(ConnectionError):    # a dtest server does not read it
            s.sendall(address)
    return address


class Relay:
    """Gives an address to the next client at a port of this host; host: one of its addresses, "" all of them."""

    def __init__(self, port, address, limit_s, host="127.0.0.1"):
        self.address, self.limit_s = address, limit_s
        self.listener = socket.create_server((host, port))    # with SO_REUSEADDR
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self):
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError):    # of a client that ends early
            s, _ = self.listener.accept()
            with s:
                s.settimeout(self.limit_s)
                s.sendall(self.address)
                while s.recv(ADDRESS_BYTES):
                    pass

    def __exit__(self, *why):
        self.listener.shutdown(socket.SHUT_RDWR)    # ends an accept() to which no client has connected
        self.listener.close()
        self.thread.join()
