"""A virtual machine with Debian's own kernel, for what the kernel of the machine that tests lacks.

Plain emulation (test-platform: /dev/kvm does not boot it): some ten seconds a run. The machine has no disk and no
network; its root is an initramfs of this machine's programs, of Python with its standard library, and of weft.

    boot("tests.vm.scenarios_x.check_y", …)    runs these functions there; returns what became of each
"""

import compileall
import hashlib
import json
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import upstream
from tests.support.checkout import CHECKOUT

SECONDS: Final = 3600  # in which all checks are over, whatever else the machine does
QUIET: Final = 400  # in which one of them ends, or says something, or the machine works
_WORK: Final = 20  # seconds of a processor: more than one that only waits uses meanwhile

_PROGRAMS: Final = (
    *(
        "dash",
        "env",
        "cat",
        "ls",
        "tr",
        "sleep",
        "head",
        "mkdir",
        "rm",
        "true",
        "grep",
        "mount",
        "kmod",
        "stty",
        "nsenter",
        "unshare",
        "ping",
        "sysctl",
        "hostname",
    ),
    *("ip", "tc", "bridge", "nft", "conntrack", "iptables", "ip6tables", "iptables-save", "iptables-restore"),
    *("ip6tables-save", "ip6tables-restore", "busybox", "wg", "etcd", "etcdctl", "setpriv", "readlink"),
)
_PYTHON: Final = Path(sys.executable).resolve()
_LIBRARIES: Final = ("libnftables.so.1", "libc.so.6")
# With what they need themselves. What is not loaded by name is loaded by the kernel when it is asked for.
_MODULES: Final = (
    *("af_packet", "unix", "ipv6", "veth", "dummy", "ifb", "bridge", "br_netfilter", "8021q", "vxlan", "ipip", "sctp"),
    *(
        "nf_tables",
        "nf_conntrack",
        "nf_conntrack_netlink",
        "nf_nat",
        "nft_chain_nat",
        "nft_ct",
        "nft_fib_inet",
        "nft_nat",
        "nft_meta_bridge",
    ),
    *("nft_fib_ipv4", "nft_fib_ipv6", "nft_masq", "nft_redir", "nft_compat", "nft_log", "nft_limit", "nft_reject_inet"),
    *(
        "nf_log_syslog",
        "ip_tables",
        "ip6_tables",
        "xt_addrtype",
        "xt_comment",
        "xt_conntrack",
        "xt_mark",
        "xt_multiport",
    ),
    *("xt_nat", "xt_MASQUERADE", "xt_tcpudp", "xt_sctp", "sch_tbf", "sch_netem", "sch_ingress", "cls_u32", "cls_bpf"),
    *("cls_matchall", "act_gact", "drop_monitor"),
    *("act_mirred", "tun"),
    *("wireguard", "xfrm_user", "esp4", "authenc", "echainiv", "seqiv", "gcm", "ctr", "cbc", "ghash_generic", "drbg"),
)
_EXTENSIONS: Final = ("/usr/lib/x86_64-linux-gnu/xtables", "/etc/ethertypes", "/etc/protocols", "/etc/services")
_CHARON: Final = Path("/usr/lib/ipsec/charon")  # its plugins are in a folder beside it
# Of the standard library, what no test needs and is large.
_UNWANTED: Final = ("test", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo", "pydoc_data", "config-3*")
# tests.support.netns has fixtures.
_TESTS_NEED: Final = ("pytest",)
_INIT: Final = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin HOME=/root PYTHONPATH=/weft/src:/weft:/python
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts; mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
stty -F /dev/ttyS1 raw -echo
modprobe -a @modules@
ip link set lo up
cd /weft
@python@ -B -m tests.vm.inside @checks@ >/dev/console 2>&1
busybox poweroff -f
"""
_WEFT: Final = f"""#!{_PYTHON} -B
from weft.console import weft
weft()
"""


class VmError(Exception):
    """The machine did not come to an end that it could report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one check: `failure` is empty, or a traceback."""

    failure: str
    seconds: float


def boot(*checks: str) -> dict[str, Outcome]:
    """Run checks in a machine; by their functions' names what became of each. `VmError` with the console's end."""
    kernel = _kernel()
    with tempfile.TemporaryDirectory(prefix="weft-vm-") as name:
        folder = Path(name)
        base = _base(kernel)
        own = _archive(_own_tree(folder / "own", checks), folder / "own.cpio")
        # The kernel unpacks archives that stand one behind the other.
        with (folder / "initramfs").open("wb") as whole:
            for part in (base, own):
                with part.open("rb") as archive:
                    shutil.copyfileobj(archive, whole)
        return _run(kernel, folder)


def _kernel() -> Path:
    done = subprocess.run([CHECKOUT / "scripts" / "vm-kernel.sh"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def _run(kernel: Path, folder: Path) -> dict[str, Outcome]:
    console, report = folder / "console", folder / "report"
    [image] = (kernel / "boot").glob("vmlinuz-*")
    command = [
        *("qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024", "-smp", "2"),
        *("-display", "none", "-no-reboot", "-nic", "none", "-monitor", "none"),
        *("-serial", f"file:{console}", "-serial", f"file:{report}"),
        *("-kernel", str(image), "-initrd", str(folder / "initramfs"), "-append", "console=ttyS0 quiet panic=-1"),
    ]
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(command, stdout=errors, stderr=errors) as machine:
        problem = _wait(machine, report, console)
        errors.seek(0)
        return read_report(report, console, problem or errors.read())


def _wait(machine: "subprocess.Popen[bytes]", *growing: Path) -> str:
    """Wait for a machine's end while one of these files grows, or it works; returns what is wrong if it is ended."""
    sizes, work = [-1], 0.0
    while True:
        now, worked = [path.stat().st_size if path.exists() else 0 for path in growing], _worked(machine.pid)
        if now == sizes and worked - work < _WORK:
            machine.kill()
            return f"it did nothing for {QUIET} s"
        sizes, work = now, worked
        try:
            machine.wait(QUIET)
        except subprocess.TimeoutExpired:
            continue
        return ""


def _worked(pid: int) -> float:
    """The seconds of a processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def read_report(report: Path, console: Path, problem: str) -> dict[str, Outcome]:
    """Read the outcomes of a machine that has ended; `problem` is what else is known of its end."""
    lines = report.read_text(errors="replace").splitlines() if report.exists() else []
    if lines[-1:] != ["end"]:
        said = console.read_text(errors="replace") if console.exists() else ""
        last = lines[-1][:200] if lines else "nothing"
        raise VmError(f"the machine's last words: {last}\n{problem}\nits console ended with:\n{said[-4000:]}")
    outcomes = map(json.loads, lines[:-1])
    return {each["check"]: Outcome(failure=each["failure"], seconds=each["seconds"]) for each in outcomes}


# --- What the machine consists of


def _base(kernel: Path) -> Path:
    """The part that changes with this machine's packages alone, made once for each state of them."""
    wanted = hashlib.sha256(f"{kernel.name} {Path(__file__).read_text()} {sys.version}".encode())
    for program in _PROGRAMS:
        wanted.update(str(_found(program).stat().st_mtime_ns).encode())
    archive = kernel.parent / f"base-{wanted.hexdigest()[:16]}.cpio"
    if not archive.exists():
        for old in kernel.parent.glob("base-*.cpio"):
            old.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="weft-vm-") as name:
            tree = Path(name, "tree")
            _base_tree(tree, kernel)
            _archive(tree, Path(name, "base.cpio"))
            shutil.copy2(Path(name, "base.cpio"), archive.with_suffix(f".{os.getpid()}"))
        archive.with_suffix(f".{os.getpid()}").rename(archive)
    return archive


def _base_tree(tree: Path, kernel: Path) -> None:
    for name in (
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "root",
        "var/lib",
        "etc",
    ):
        (tree / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / name).symlink_to(f"usr/{name}")
    (tree / "var/run").symlink_to("/run")
    for program in _PROGRAMS:
        _copy(tree, _found(program))
    python = Path(sysconfig.get_path("stdlib"))
    _copy(tree, _PYTHON)
    shutil.copytree(python, tree / python.relative_to("/"), ignore=shutil.ignore_patterns(*_UNWANTED), symlinks=True)
    for extension in (*python.glob("lib-dynload/*.so"), *Path(_EXTENSIONS[0]).glob("*.so")):
        _copy_libraries(tree, extension)
    for library in _LIBRARIES:
        _copy(tree, Path("/usr/lib/x86_64-linux-gnu", library))
    for name in _EXTENSIONS:
        if Path(name).exists():
            _copy(tree, Path(name))
    _copy(tree, _CHARON)
    for plugin in (_CHARON.parent / "plugins").iterdir():
        _copy(tree, plugin)
    _copy_packages(tree)
    for program, name in (("dash", "sh"), ("kmod", "modprobe")):
        (tree / "usr" / ("bin" if name == "sh" else "sbin") / name).unlink(missing_ok=True)
        (tree / "usr" / ("bin" if name == "sh" else "sbin") / name).symlink_to(f"/usr/bin/{program}")
    _copy_modules(tree, kernel)


def _copy_packages(tree: Path) -> None:
    """Copy Python packages of this environment, and the libraries that they need."""
    python = tree / "python"
    for each in _needed("weft-cni", *_TESTS_NEED):
        for file in each.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and each.name != "weft-cni":
                target = python / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(str(file.locate())), target)
    for extension in python.rglob("*.so"):
        _copy_libraries(tree, extension)
    compileall.compile_dir(python, quiet=2)


def _needed(*names: str) -> list[Distribution]:
    """What is installed of these packages and of all that they need."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found[name] = distribution(name)
        wanted = map(Requirement, found[name].requires or ())
        waiting += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return list(found.values())


def _found(program: str) -> Path:
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if path is None:
        raise VmError(f"no {program} on this machine; scripts/setup.sh installs what is needed")
    return Path(path)


def _copy(tree: Path, path: Path) -> None:
    """Copy a file, what links lead to, and the libraries that it needs."""
    target = tree / path.parent.resolve().relative_to("/") / path.name
    if target.exists() or target.is_symlink():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(path.readlink())
        _copy(tree, path.parent / path.readlink())
    elif path.is_dir():
        shutil.copytree(path, target, symlinks=True)
    else:
        shutil.copy2(path, target)
        _copy_libraries(tree, path)


def _copy_libraries(tree: Path, path: Path) -> None:
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+) \(0x", said):
        _copy(tree, Path(library))


def _copy_modules(tree: Path, kernel: Path) -> None:
    [folder] = (kernel / "lib" / "modules").iterdir()
    target = tree / "usr/lib/modules" / folder.name
    target.mkdir(parents=True)
    needs = {
        line.split(":")[0]: line.split(":")[1].split() for line in (folder / "modules.dep").read_text().splitlines()
    }
    by_name = {Path(path).name.split(".")[0].replace("-", "_"): path for path in needs}
    wanted = [by_name[name] for name in _MODULES if name in by_name]
    for path in {*wanted, *(needed for each in wanted for needed in needs[each])}:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / path, target / path)
    for path in folder.glob("modules.*"):
        shutil.copy2(path, target)


def _own_tree(tree: Path, checks: Sequence[str]) -> Path:
    """What changes with every run: weft, its tests, and what to do."""
    for name in ("src/weft", "tests"):
        ignore = shutil.ignore_patterns("*.cpio", "client")
        shutil.copytree(CHECKOUT / name, tree / "weft" / name, ignore=ignore)
    compileall.compile_dir(tree / "weft", quiet=2, stripdir=str(tree))
    if (flanneld := upstream.place("flanneld")).exists():
        target = tree / "root/.cache" / flanneld.relative_to(upstream.cache())
        target.parent.mkdir(parents=True)
        shutil.copyfile(flanneld, target)
        target.chmod(0o755)
    init = _INIT
    for word, value in (("modules", " ".join(_MODULES)), ("checks", " ".join(checks)), ("python", str(_PYTHON))):
        init = init.replace(f"@{word}@", value)
    # Guards are started with `python -I`, which does without PYTHONPATH.
    paths = [
        (f"{each.lstrip('/')}/weft.pth", "/weft/src\n/python\n") for each in site.getsitepackages([sys.base_prefix])
    ]
    for name, text in (("init", init), ("usr/bin/weft", _WEFT), *paths):
        script = tree / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text)
        script.chmod(0o755)
    return tree


def _archive(tree: Path, out: Path) -> Path:
    names = b"\0".join(os.fsencode(path.relative_to(tree)) for path in _sorted(tree))
    with out.open("wb") as archive:
        command = ["cpio", "--null", "--create", "--format=newc", "--owner=0:0", "--quiet"]
        subprocess.run(command, cwd=tree, input=names, stdout=archive, check=True)
    return out


def _sorted(tree: Path) -> Iterable[Path]:
    """All paths below, directories before what is in them."""
    return sorted(tree.rglob("*"))
