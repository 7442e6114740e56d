# SPDX-License-Identifier: MIT
"""Nodes with a verbs device of Linux (nodes), for tests: what runs in them, and their dat.conf."""
import os
import pathlib
import shlex
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
import tap  # noqa: E402
from tap import limited  # noqa: E402

NODES = str(HERE / "nodes")
LIMIT_S = 240    # against hangs: the maximum time of a run
# Lines of dat.conf by the verbs device on eth0. siw has no datagrams, and its connections are RDMA-CM's: no scm.
IAS = {"rxe": {"own": '{prefix}/lib/libdaplverbs.so daplverbs.1.0 "eth0"',
               "ofa": 'libdaplofa.so.2 dapl.2.0 "eth0 0"',
               "scm": 'libdaploscm.so.2 dapl.2.0 "rxe0 1"'},
       "siw": {"own": '{prefix}/lib/libdaplverbs.so daplverbs.1.0 "eth0"',
               "ofa": 'libdaplofa.so.2 dapl.2.0 "eth0 0"'}}


class Nodes:
    """n1 to n<count>, which end with the block, or with this process. wire: no switch is between two."""

    def __init__(self, folder, prefix, count=2, device="rxe", wire=False):
        self.folder, self.prefix, self.count, self.device = folder, prefix, count, device
        self.eth0 = ["wire"] if wire else []
        self.conf = folder / f"{device}.conf"
        rows = {name: rest.format(prefix=prefix) for name, rest in IAS[device].items()}
        rows["soft0"] = rows["own"]    # the names in test/provider
        rows["ports1"] = rows["own"].replace('"eth0"', '"eth0 alternate=eth0.2"')
        rows["own6"] = rows["own"].replace('"eth0"', '"eth0 retry=6 ack_timeout=14"')    # after half a second
        rows["paths"] = rows["own"].replace('"eth0"', '"eth0 alternate=eth0.2 retry=6 ack_timeout=14"')
        rows["second"] = rows["own"].replace('"eth0"', '"eth2 retry=6 ack_timeout=14"')
        self.conf.write_text("".join(f'{name} u2.0 nonthreadsafe default {rest} ""\n' for name, rest in rows.items()))
        self.base = dict(os.environ, UML_NODES=str(folder / "nodes"), DAT_OVERRIDE=str(self.conf),
                         DAPL_SCM_NETDEV="eth0", PATH=f"{prefix}/bin:{os.environ['PATH']}")

    def __enter__(self):
        status, text = limited([NODES, f"--while={os.getpid()}", "up", str(self.count), self.device,
                                *self.eth0], LIMIT_S, env=self.base)
        if status != 0:
            raise RuntimeError(text)
        return self

    def __exit__(self, *_):
        self.ask("down")

    def env(self, knobs=None, **more):
        """The environment of a run: MPIR_CVAR_DAPL_*, and others."""
        return dict(self.base, **{f"MPIR_CVAR_DAPL_{k}": v for k, v in (knobs or {}).items()}, **more)

    def ask(self, *words):
        """cut, heal, down."""
        return limited([NODES, *words], LIMIT_S, env=self.base)[0] == 0

    def command(self, node, *words):
        """The host's command that runs one in a node."""
        return [NODES, "on", node, shlex.join(map(str, words))]

    def on(self, node, text, seconds=LIMIT_S, env=None):
        """(status, output) of a shell's text in a node; status None: not finished."""
        return limited([NODES, "on", node, text], seconds, env=env or self.base)

    def mpiexec(self, ranks, program, env, *options):
        return [NODES, "mpiexec", str(self.prefix), *options, "-n", str(ranks), *map(str, program)]

    def job(self, ranks, program, env, seconds=LIMIT_S, options=()):
        """(status, output) of an MPI job whose ranks are on the nodes in turn."""
        return limited(self.mpiexec(ranks, program, env, *options), seconds, env=env)

    def start(self, ranks, program, env):
        return tap.start(self.mpiexec(ranks, program, env), env=env)
