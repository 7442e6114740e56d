#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""files.py ROOT: which package of debian/ has which of the files of ROOT, where make install put them.

Prints a line for each file that no package or more than one has, for each pattern of debian/*.install that
matches nothing, and for each package without files, or file of debian/ for a package that debian/control does
not have. Status 1 when there was one.
"""
import pathlib
import re
import sys

DEBIAN = pathlib.Path(__file__).resolve().parents[2] / "debian"
# made by debian/rules; and what is only built where there are gfortran and librdmacm
MAY_MISS = {"etc/mpich-dapl/dat.conf", "usr/lib/mpich-dapl/bin/mpif*", "usr/lib/*/dapl/libdaplverbs.so"}


def patterns(path):
    lines = (line.strip() for line in path.read_text().split("\n"))
    return [line.split() for line in lines if line and not line.startswith("#")]


def found(root, pattern):
    """The files below what a pattern of dh_install matches."""
    for path in root.glob(pattern):
        if path.is_dir() and not path.is_symlink():
            yield from (p for p in path.rglob("*") if p.is_symlink() or not p.is_dir())
        else:
            yield path


def main():
    root, wrong, owners = pathlib.Path(sys.argv[1]), [], {}
    packages = set(re.findall(r"^Package: (\S+)", (DEBIAN / "control").read_text(), re.M))
    filled = set()
    for path in sorted(DEBIAN.iterdir()):
        package, _, kind = path.name.rpartition(".")
        if kind not in ("install", "docs", "links", "manpages", "postinst", "prerm"):
            continue
        if package not in packages:
            wrong.append(f"{path.name} is for no package of control")
        if kind in ("install", "docs"):
            filled.add(package)
        for words in patterns(path) if kind == "install" else []:
            files = list(found(root, words[0]))
            if not files and words[0] not in MAY_MISS and not list(DEBIAN.parent.glob(words[0])):
                wrong.append(f"{path.name}: nothing is {words[0]}")
            for file in files:
                owners.setdefault(file, []).append(package)
    left = {file for words in patterns(DEBIAN / "not-installed") for file in found(root, words[0])}
    for file in sorted(p for p in root.rglob("*") if p.is_symlink() or not p.is_dir()):
        has = owners.get(file, []) + ["not-installed"] * (file in left)
        if len(has) != 1:
            wrong.append(f"{file.relative_to(root)} is of {' and '.join(has) or 'no package'}")
    wrong += [f"the package {package} has no files" for package in sorted(packages - filled)]
    print("\n".join(wrong))
    return bool(wrong)


sys.exit(main())
