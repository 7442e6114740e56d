# SPDX-License-Identifier: MIT
"""What others have written, on nodes: MPICH's own test suite, NetPIPE with its integrity check, the NAS kernels.
Functions return rows (good, name, text)."""
import os
import re
import shutil

from uml import HERE, LIMIT_S, NODES, limited

TOP = HERE.parents[2]
LIST_S, RUN_S = 10800, 2400    # against hangs: of all runs of a list together; of one, the longest takes 500
LEFT_OUT = "pt2pt/large_message"    # messages of 2 GiB and more, where a node has 512 MiB
KERNELS = ("ep", "is", "cg", "ft", "mg")


def suite_of(build):
    """MPICH's test suite, (build tree, sources), where ./quickstart or ./check has made it; None: it has not."""
    there = build.parent / "mpich-obj/test/mpi", build.parent / "mpich.dir"
    if not all(p.exists() for p in there):
        return None
    return there[0], there[1].read_text().strip() + "/test/mpi"


def wrapper(nodes):
    """An mpiexec for other programs: on the nodes."""
    path = nodes.folder / "mpiexec"
    path.write_text(f'#!/bin/sh\nexec {NODES} mpiexec {nodes.prefix} "$@"\n')
    path.chmod(0o755)
    return path


def list_of(nodes, suite, ia, folder):
    """A list of MPICH's suite, as test/mpi/run --quick has it."""
    env = nodes.env({"CHANNELS": "dapl", "IA": ia})
    status, text = limited([TOP / "test/mpi/run", f"--suite={suite[0]}", f"--source={suite[1]}",
                            f"--mpiexec={wrapper(nodes)}", "--jobs=1", "--quick",
                            f"--limit={RUN_S}", f"--match=^(?!{LEFT_OUT} )", folder], LIST_S, env=env)
    lines = re.findall(r"^(ok|not ok) \d+ - mpi: (.*)$", text, re.M)
    skipped = [name for _, name in lines if "# SKIP" in name]
    failed = [name for word, name in lines if word == "not ok"]
    passed = len(lines) - len(skipped) - len(failed)
    return (status == 0 and passed > 0 and not failed,
            f"{nodes.device}, {ia}: MPICH's list {folder}: {passed} pass ({len(skipped)} left out)",
            "\n".join([text, f"failed: {len(failed)}", *failed]))


def netpipe(nodes, ia):
    """NetPIPE from Debian, which loads the library under test."""
    program = shutil.which("NPmpich2")
    if not program:
        return None
    env = nodes.env({"CHANNELS": "dapl", "IA": ia})
    env["LD_LIBRARY_PATH"] = f"{nodes.prefix}/lib"
    _, libraries = nodes.on("n1", f"ldd {program}", env=env)
    ours = f"libmpich.so.12 => {os.path.realpath(nodes.prefix)}/lib/" in libraries
    status, text = nodes.job(2, [program, "-i", "-u", "1048576", "-o", nodes.folder / "np.out"], env, 4 * LIMIT_S)
    return (ours and status == 0 and text.count("Integrity check passed") >= 30
            and "integrity check failed" not in text.lower(),
            f"{nodes.device}, {ia}: NetPIPE's integrity check up to 1 MiB", f"{libraries}{text}\n(status {status})")


def kernels(nodes, ias):
    """A row for each kernel: class S on 2 and 4 ranks, on each of these IAs."""
    status, text = limited([TOP / "benchmarks/kernels/build", nodes.prefix / "bin/mpicc", nodes.folder], LIMIT_S)
    yield status == 0, "the kernels are built", text
    for ia in ias:
        for kernel in KERNELS:
            good, texts = True, ""
            for ranks in (2, 4):
                status, text = nodes.job(ranks, [nodes.folder / kernel, "S"], nodes.env({"CHANNELS": "dapl", "IA": ia}))
                good = good and status == 0 and re.search(rf"^{kernel} S {ranks} \S+ \S+ VERIFIED$", text, re.M)
                texts += f"{text}\n({ranks} ranks: status {status})\n"
            yield good, f"{nodes.device}, {ia}: kernel {kernel}, class S, 2 and 4 ranks", texts
