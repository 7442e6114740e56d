# SPDX-License-Identifier: MIT
"""The ground without a kernel: the stand-in for libibverbs and librdmacm, and the verbs providers on it."""
import os
import pathlib
import re
import shutil

import tap

HERE = pathlib.Path(__file__).resolve().parent
BUILD_S = 240    # against a compiler that hangs


def ias(library):
    """By name, what a line of dat.conf has of our own provider, this library, and of Debian's."""
    return {"own": f'{library} daplverbs.1.0 "127.0.0.1"',
            "ofa": 'libdaplofa.so.2 dapl.2.0 "127.0.0.1 0"',
            "scm": 'libdaploscm.so.2 dapl.2.0 "hv0 1"'}


def is_quiet(text):
    """Have Debian's providers printed nothing of their own among this output? Their lines have a time."""
    return not re.search(r" us\(\d+ us", text)


class Ground:
    """The stand-in, built in a folder, under the names that the providers look for. lines: of dat.conf, by IA."""

    def __init__(self, folder, lines):
        self.folder = pathlib.Path(folder)
        self.lib = self.folder / "lib"
        self.lib.mkdir()
        self.conf = self.folder / "dat.conf"
        self.conf.write_text("".join(f'{name} u2.0 nonthreadsafe default {rest} ""\n' for name, rest in lines.items()))
        self.runs = 0

    def compiled(self, library, versions, sources, *options):
        return tap.limited(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-fPIC",
                            "-shared", f"-Wl,--version-script={HERE / versions}", *options, "-o", self.lib / library,
                            *(HERE / f"{f}.c" for f in sources), "-lpthread"], BUILD_S)

    def build(self):
        status, text = self.compiled("libhv.so", "versions.map", ("shared", "queue", "ibv", "srq", "cm", "paths"))
        for name in ("libibverbs.so.1", "librdmacm.so.1"):
            (self.lib / name).symlink_to("libhv.so")
        return status == 0, text

    def build_for_ucx(self):
        """What UCX needs beside it (mlx5.c)."""
        status, text = self.compiled("libmlx5.so.1", "mlx5.map", ("mlx5",), "-Wl,-soname,libmlx5.so.1")
        return status == 0, text

    def env(self, **more):
        """A fresh set of verbs objects, which the processes of one run share."""
        self.runs += 1
        objects = self.folder / f"run{self.runs - 1}"
        if objects.exists():
            shutil.rmtree(objects)
        objects = self.folder / f"run{self.runs}"
        objects.mkdir()
        return dict(os.environ, LD_LIBRARY_PATH=str(self.lib), VERBS_DIR=str(objects), DAT_OVERRIDE=str(self.conf),
                    DAPL_SCM_NETDEV="lo", **more)
