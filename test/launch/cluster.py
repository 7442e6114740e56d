#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cluster.py [COMMAND...]: runs COMMAND, without one a shell, on a host of a small cluster on this machine.

The cluster has two hosts, a and b: network namespaces joined by a cable (tools/hosts.py), each with processes, a host
name and a few files of /etc of its own, all other files shared. Both have an sshd, and a Slurm of Debian's packages
runs on them; SLURM_CONF names its slurm.conf. Nothing is installed: packages that the system does not have are unpacked
in build/launch. Nothing remains either, since all processes of a host end with its first one, and that ends with this
program. Needs root.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))
from hosts import Hosts  # noqa: E402

UNPACKED = TOP / "build/launch"
LIB = f"usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
# libpmix-dev: the plugin mpi/pmix loads libpmix.so by this name, which only that package has
PACKAGES = ("openssh-server", "munge", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libpmix2",
            "libpmix-dev")
NET = "10.83.0"
CPUS = 8           # that Slurm takes each host to have: ranks sleep as they wait
START_S = 60


class Missing(Exception):
    """Why there can be no cluster here, in a few words."""


def unpack():
    """Gets those packages and all that they need, if the system or UNPACKED does not have them. Missing."""
    done = UNPACKED / "packages"
    if done.exists() or all(shutil.which(name) for name in ("sshd", "munged", "slurmctld", "slurmd")):
        return
    if not shutil.which("apt-get"):
        raise Missing("no apt-get here")
    UNPACKED.mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-q", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]
    plan = subprocess.run([*apt, "install", "-y", "--no-install-recommends", "--reinstall", "--simulate", *PACKAGES],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    names = re.findall(r"^Inst (\S+)", plan, re.M)
    got = subprocess.run([*apt, "download", *names], cwd=UNPACKED, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not names or got.returncode:
        raise Missing("Debian's archive does not give slurmd, munge and openssh-server")
    for archive in UNPACKED.glob("*.deb"):
        subprocess.run(["dpkg", "-x", archive, UNPACKED], check=True)
        archive.unlink()
    done.write_text("\n".join(names) + "\n")


def where(folder, name):
    """A file of one of the packages: that which is unpacked, or the system's."""
    return next((p for p in (UNPACKED / folder / name, pathlib.Path("/") / folder / name) if p.exists()), None)


def slurm_conf(folder, names):
    """Slurm without accounting, cgroups and binding, which need a system of its own."""
    nodes = "".join(f"NodeName={name} NodeAddr={addr} CPUs={CPUS}\n" for name, addr in names.items())
    first, addr = next(iter(names.items()))
    return f"""ClusterName=mdapl
SlurmctldHost={first}({addr})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
PluginDir={where(LIB, "slurm-wlm")}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
{nodes}PartitionName=all Nodes={",".join(names)} Default=YES MaxTime=INFINITE State=UP
"""


SSHD_CONF = """Port 22
ListenAddress {addr}
HostKey {folder}/host_key
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
"""
SSH_CONF = """Host *
    IdentityFile {folder}/user/.ssh/id_ed25519
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""
# The first process of a host: sets it up, and remains until its standard input is closed.
FIRST = """
hostname "$1" &&
for file in passwd shadow hosts; do mount --bind "$2/etc/$file" "/etc/$file" || exit; done
mount -t tmpfs tmpfs /run && mkdir /run/sshd || exit
if [ "$3" ]; then mount --bind "$3" "/${3#"$4"/}"; fi
echo ready
read -r _
"""


class Cluster:
    """on(host, words) is the command that runs words there. Ends with the `with` block. Missing."""

    def __init__(self):
        if os.geteuid() != 0:
            raise Missing("needs root")
        unpack()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mdapl-launch."))
        self.folder.chmod(0o711)         # munged wants to be reached
        self.first, self.daemons, self.hosts = {}, [], None
        try:
            self._start()
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            self.end()
            raise Missing(f"no hosts here: {e}") from e
        except BaseException:
            self.end()
            raise

    def _start(self):
        self.hosts = Hosts(NET)
        names = {"a": f"{NET}.1", "b": f"{NET}.2"}
        self._files(names)
        for name, space in (("a", self.hosts.a), ("b", self.hosts.b)):
            self._boot(name, space)
        lib = [str(UNPACKED / LIB), str(UNPACKED / LIB / "slurm-wlm")]
        path = [str(UNPACKED / p) for p in ("usr/bin", "usr/sbin")] + [os.environ["PATH"], "/usr/sbin", "/sbin"]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(lib), PATH=":".join(path),
                        SLURM_CONF=str(self.folder / "slurm.conf"))
        self._daemon("a", ["munged", "--foreground", f"--socket={self.folder}/munge.socket",
                           *(f"--{what}-file={self.folder}/munge.{what}" for what in ("key", "pid", "log", "seed"))])
        self._wait(lambda: (self.folder / "munge.socket").exists(), "munged")
        conf = ["-D", "-f", self.folder / "slurm.conf"]
        self._daemon("a", [self._sbin("slurmctld"), *conf])
        for name in names:
            self._daemon(name, [self._sbin("slurmd"), *conf, "-d", self._sbin("slurmstepd")])
            self._daemon(name, [where("usr/sbin", "sshd"), "-D", "-e", "-f", self.folder / f"sshd.{name}.conf"])
        self._wait(lambda: self.output("a", ["sinfo", "-h", "-o", "%D %T"]).strip() == "2 idle", "Slurm")

    @staticmethod
    def _sbin(name):
        return where("usr/sbin", f"{name}-wlm") or where("usr/sbin", name)

    def _files(self, names):
        """Keys, configurations, and the files of /etc of the hosts."""
        folder = self.folder
        for part in ("etc", "user/.ssh", "state", *(f"spool.{name}" for name in names)):
            (folder / part).mkdir(parents=True, mode=0o755)
        for key in ("host_key", "user/.ssh/id_ed25519"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        shutil.copy(folder / "user/.ssh/id_ed25519.pub", folder / "user/.ssh/authorized_keys")
        texts = {"etc/passwd": f"root:x:0:0:root:{folder}/user:/bin/bash\nsshd:x:100:65534::/run/sshd:/bin/false\n",
                 "etc/shadow": "root:*:19000:0:99999:7:::\n",
                 "etc/hosts": "127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in names.items()),
                 "user/.ssh/config": SSH_CONF.format(folder=folder),
                 "slurm.conf": slurm_conf(folder, names),
                 "cgroup.conf": "CgroupPlugin=cgroup/v1\n",    # slurmd loads one in any case; this needs no mount
                 "mpi.conf": "PMIxCliTmpDirBase=/run\n",    # which each host has of its own, unlike /tmp
                 **{f"sshd.{n}.conf": SSHD_CONF.format(folder=folder, addr=a) for n, a in names.items()}}
        for name, text in texts.items():
            (folder / name).write_text(text)
        (folder / "munge.key").write_bytes(os.urandom(64))
        (folder / "munge.key").chmod(0o600)

    def _boot(self, name, space):
        pmix = UNPACKED / LIB / "pmix2/lib"
        pmix = str(pmix) if pmix.exists() and (pathlib.Path("/") / LIB / "pmix2/lib").exists() else ""
        p = subprocess.Popen(["ip", "netns", "exec", space, "unshare", "--uts", "--mount", "--pid", "--fork",
                              "--kill-child", "--mount-proc", "bash", "-c", FIRST, "bash", name, self.folder, pmix,
                              UNPACKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first[name] = p
        if p.stdout.readline() != "ready\n":
            raise Missing("no namespaces here")

    def on(self, host, words):
        """The command that runs words on a host, in the present folder."""
        pid = self.first[host].pid
        return ["nsenter", "-t", str(pid), "-n", "-u", "-m", f"--pid=/proc/{pid}/ns/pid_for_children",
                f"--wdns={os.getcwd()}", *map(str, words)]

    def output(self, host, words):
        return subprocess.run(self.on(host, words), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout

    def _daemon(self, host, words):
        out = open(self.folder / f"daemon{len(self.daemons)}.out", "w", encoding="utf-8")
        self.daemons.append(subprocess.Popen(self.on(host, words), env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                             stderr=out))

    def _wait(self, ready, what):
        end = time.monotonic() + START_S
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError(f"{what} does not start: {self.logs()}")
            time.sleep(0.05)

    def logs(self):
        """The last line of each daemon."""
        texts = (p.read_text(errors="replace").strip().split("\n")[-1] for p in self.folder.glob("daemon*.out"))
        return "; ".join(t for t in texts if t)

    def end(self):
        for p in self.first.values():
            p.stdin.close()
        for p in [*self.first.values(), *self.daemons]:
            p.wait()
        if self.hosts:
            self.hosts.__exit__()
        shutil.rmtree(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.end()


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))    # ends the cluster
    try:
        with Cluster() as cluster:
            return subprocess.run(cluster.on("a", sys.argv[1:] or ["bash"]), env=cluster.env).returncode
    except Missing as e:
        print(f"cluster.py: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
