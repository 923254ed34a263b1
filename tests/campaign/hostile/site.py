"""A node for hostile calls: everything that a call may leave behind can be seen, and nothing of the machine reached.

Caller and daemon each see the machine's files through an overlay of their own, so that whatever they write is in its
upper directory. The overlays live in a mount namespace that ends with the site.
"""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.checkout import CHECKOUT
from tests.support.cni.call import SECONDS
from tests.support.netns import Netns
from tests.support.waiting import eventually, looks, slowness
from weft.cni import build
from weft.cni.install.executables import install

Json = Any

# What one call may take on a quiet machine.
CALL_SECONDS = 4.0
# What the daemon may grow by: to no more than twice of what it has after its first calls.
MEMORY = 24 << 20
_STILL = 2.0  # seconds: the kernel looks at new links once a second

ENV = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/26\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"

_MOUNTS = """
set -e
mount -t tmpfs -o mode=755 none "$0"
for who in caller daemon; do
    mkdir -p "$0/$who/upper" "$0/$who/work" "$0/$who/root"
    mount -t overlay -o "lowerdir=/,upperdir=$0/$who/upper,workdir=$0/$who/work" none "$0/$who/root"
    mount --rbind /proc "$0/$who/root/proc"
    # Not the machine's /dev: a plugin that is told to replace /dev/null must not succeed.
    dev="$0/$who/root/dev"
    mount -t tmpfs none "$dev"
    for name in null zero urandom; do touch "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"; done
    ln -s /proc/self/fd "$dev/fd"; ln -s fd/0 "$dev/stdin"
done
# One socket for both, and the daemon's state where it can be seen.
mkdir -p "$0/shared/run" "$0/shared/state" "$0/caller/root/run/weft" "$0/daemon/root/weft"
chmod 700 "$0/shared/run"
mount --bind "$0/shared" "$0/daemon/root/weft"
mount --bind "$0/shared/run" "$0/caller/root/run/weft"
echo ready
exec sleep infinity
"""
_LOOK = """
ip -o -d -batch - <<END
link show
address show
route show table all
rule show
END
ip -6 -batch - <<END
route show table all
rule show
END
tc -batch - <<END
qdisc show
filter show
END
nft -s list ruleset
"""
# What may differ between two looks without meaning anything: lifetimes, the kernel's own progress.
_VOLATILE = re.compile(r"(valid_lft|preferred_lft|expires) \S+|tentative|dadfailed|\w+_timer +\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call did."""

    exit: int
    stdout: bytes
    stderr: bytes

    @property
    def json(self) -> Json:
        """Standard output, which must be one JSON object of printable UTF-8."""
        found = json.loads(self.stdout.decode())
        assert isinstance(found, dict), self.stdout
        return found


class Site:
    """The host's namespace, a daemon, a pod that is free, one that is attached, and a caller that calls plugins."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        assert build.PROGRAM.build(), "musl-gcc is missing"
        self.directory = directory
        directory.mkdir()
        self.host = stack.enter_context(Netns())
        self.free = stack.enter_context(Netns())
        self.held = stack.enter_context(Netns())
        self._holder = self.host.popen(
            ["unshare", "-m", "--propagation", "private", "bash", "-c", _MOUNTS, str(directory)], stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        stack.callback(self._holder.stdout.close)
        assert self._holder.stdout.readline() == b"ready\n"
        # Through here the mounts can be seen from outside.
        self.inside = Path(f"/proc/{self._holder.pid}/root") / directory.relative_to("/")
        self.shared = self.inside / "shared"
        caller = self.inside / "caller" / "root"
        install(caller / "weft")
        _hostile_delegates(caller / "weft")
        (caller / "run" / "flannel.env").write_text(ENV)
        self.daemon: subprocess.Popen[bytes] = self.host.popen(
            self._entering("daemon", sys.executable, "-B", "-m", "tests.campaign.hostile.daemon", "/weft"),
            cwd=CHECKOUT,
            stderr=stack.enter_context((directory.parent / "daemon.log").open("wb")),
        )
        stack.callback(self._end)
        eventually((self.shared / "run" / "cni.sock").exists)

    def _end(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(SECONDS)

    def _entering(self, who: str, *command: str) -> list[str]:
        mounts = f"/proc/{self._holder.pid}/ns/mnt"
        root = self.directory / who / "root"
        return ["nsenter", f"--mount={mounts}", "chroot", str(root), "env", "-C", str(CHECKOUT), *command]

    def call(self, plugin: str, env: Mapping[str, str | bytes], stdin: bytes, *, alone: bool = False) -> Answer:
        """Call a plugin as a program: the client beside the daemon, or alone where no daemon answers."""
        everything: dict[str, str | bytes] = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "WEFT_CNI_SOCKET": "/dev/alone/cni.sock" if alone else "/run/weft/cni.sock",
            "WEFT_STATE_DIR": "/var/lib/weft-alone",
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        }
        mounts = f"/proc/{self._holder.pid}/ns/mnt"
        root = str(self.directory / "caller" / "root")
        with self.host.popen(
            ["nsenter", f"--mount={mounts}", "chroot", root, f"/weft/{plugin}"],
            env=everything,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            out, err = _ended(child, stdin)
        return Answer(exit=child.returncode, stdout=out, stderr=err)

    @contextmanager
    def root(self) -> Iterator[int]:
        """A descriptor of the caller's root directory, as the client sends it."""
        fd = os.open(self.inside / "caller" / "root", os.O_PATH | os.O_DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    @property
    def socket(self) -> Path:
        return self.shared / "run" / "cni.sock"

    # --- What can be seen

    def look(self) -> dict[str, str]:
        """Everything that a call must leave as it was, by what it is."""
        seen = {f"{name}: {line}": "" for name, netns in self._namespaces() for line in _lines(netns)}
        for who in ("caller", "daemon"):
            seen |= _tree(self.inside / who / "upper", f"file of the {who}: ")
        return seen | _tree(self.shared / "state", "state: ")

    def rest(self) -> None:
        """Wait until nothing has changed for a while: links and addresses come up by the kernel's own clocks."""
        seen, since = self.look(), time.monotonic()
        for _ in looks(20):
            tentative = any(netns.run("ip -6 -o address show tentative") for _, netns in self._namespaces())
            if tentative or self.look() != seen:
                seen, since = self.look(), time.monotonic()
            elif time.monotonic() - since > _STILL:
                return
        raise AssertionError("links and addresses do not come to rest")

    def _namespaces(self) -> Iterator[tuple[str, Netns]]:
        yield from (("host", self.host), ("free pod", self.free), ("held pod", self.held))

    def tidy(self, bridges: frozenset[str]) -> None:
        """Remove the bridges that calls have made, which are theirs to make, except for those."""
        for link in self.host.rtnl.links():
            if link.kind == "bridge" and link.name not in bridges:
                self.host.rtnl.delete_link(link.index)

    def bridges(self) -> frozenset[str]:
        return frozenset(link.name for link in self.host.rtnl.links() if link.kind == "bridge")

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.daemon.pid}/fd").iterdir())

    def threads(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.daemon.pid}/task").iterdir())

    def memory(self) -> int:
        """Bytes that the daemon has in memory."""
        return int(Path(f"/proc/{self.daemon.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def plant(self, fault: str) -> None:
        """Have the daemon do something wrong whenever a call fails; nothing: no more."""
        if fault:
            (self.shared / "planted").write_text(fault)
        else:
            (self.shared / "planted").unlink()


def _ended(child: "subprocess.Popen[bytes]", stdin: bytes) -> tuple[bytes, bytes]:
    """What a call wrote; fails where it takes longer than a machine as busy as this one explains."""
    try:
        return child.communicate(stdin, CALL_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    try:
        return child.communicate(timeout=CALL_SECONDS * (slowness() - 1))
    except subprocess.TimeoutExpired:
        child.kill()
        raise AssertionError(f"took more than {CALL_SECONDS} s of a quiet machine") from None


def _lines(netns: Netns) -> set[str]:
    text = netns.run(_LOOK)
    # Bridges, with all that is on them, are made by the first call that needs them, and stay.
    bridges = set(re.findall(r"^\d+: (\S+?):.* bridge forward_delay", text, re.MULTILINE))
    return {_VOLATILE.sub("", line).strip() for line in text.splitlines() if not bridges & _devices(line)}


def _devices(line: str) -> set[str]:
    """Which devices a line is about: its own of a link or an address, that of a route."""
    own = re.match(r"\d+: ([^\s:@]+)", line)
    return {own[1]} if own else set(re.findall(r"\bdev (\S+)", line))


def _tree(root: Path, label: str) -> dict[str, str]:
    """Files below a directory with their content; directories, locks and hints say nothing."""
    seen: dict[str, str] = {}
    for directory, _, names in os.walk(root):
        for name in names if not directory.endswith("__pycache__") else ():
            path = Path(directory, name)
            if name in ("lock", "locks") or name.endswith(".lock") or name.startswith("last_reserved_ip."):
                continue
            mode = path.lstat().st_mode
            content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
            seen[f"{label}{path.relative_to(root)}"] = f"{mode:o} {content}"
    return seen


def _hostile_delegates(directory: Path) -> None:
    bodies = {
        "garbage": 'echo \'{"ips": [[], 7, {"address": "\\\\ud800"}]}\'',
        "noisy": "head -c 3000000 /dev/zero; head -c 300000 /dev/zero >&2",
        "dies": "kill -9 $$",
        "foreign": "cat >/dev/null",
    }
    for name, body in bodies.items():
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
