"""What the lab, its nodes and its pods see of the file system.

All of it happens in mount namespaces of the lab: the machine's directories get neither a file nor a mount. Where a
directory is missing (`/etc/cni/net.d` on a machine without CNI), its nearest parent is covered by a tmpfs with the same
entries, each bound to the original. That takes 5 ms for `/etc` and works in a user namespace on every kernel since 3.8;
an overlay would hide what is mounted below the directory.
"""

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from weft.kernel.namespaces import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUTS, unshare
from weft.lab import cgroups, system
from weft.lab.inside.namespaces import Room
from weft.model.net import Ip

# Of the lab, on its tmpfs: one directory for each node, with what is mounted in the node at the places below.
NODES: Final = Path("/run/lab/nodes")
ETCD_DATA: Final = Path("/run/lab/etcd")
POLICIES: Final = Path("/run/lab/policies")  # of a lab that enforces some: nodes see it below KUBE_FLANNEL
_HOSTS: Final = Path("/run/lab/hosts")  # in place of /etc/hosts, for all nodes and pods
_NO_SERVERS: Final = Path("/run/lab/resolv.conf")  # in place of /etc/resolv.conf
PLUGINS: Final = Path("/opt/cni/bin")
NETWORKS: Final = Path("/etc/cni/net.d")
KUBE_FLANNEL: Final = Path("/etc/kube-flannel")  # of a node whose store is Kubernetes: configuration and kubeconfig

_OWN: Final = {
    "net.d": NETWORKS,
    "kube-flannel": KUBE_FLANNEL,
    "cni": Path("/var/lib/cni"),
    "weft": Path("/var/lib/weft"),
}
# What a node with a kubelet has besides, each in a directory of its own.
_KUBELET: Final = {
    "bin": PLUGINS,
    "containerd": Path("/var/lib/containerd"),
    "kubelet": Path("/var/lib/kubelet"),
    "pods": Path("/var/log/pods"),
    "containers": Path("/var/log/containers"),
}
_ASIDE: Final = "/run/.aside"
# The first process of a node: it gives the node a /proc that shows the node's processes and no others, says so by
# closing its standard output, and then ends what has no parent any more. No signal of the node's ends it.
_OWN_PROC: Final = "mount -t proc -o nosuid,nodev,noexec proc /proc"
_REAP: Final = "echo ready; exec >&2; while :; do sleep infinity & wait; done"
# Settings of the whole machine that a kubelet wants to have so (setupKernelTunables): its node shows files instead.
_TUNABLES: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
_SHOW: Final = " && ".join(
    f"f=/run/.sys/{name} && mkdir -p $(dirname $f) && echo {value} >$f && mount --bind $f /proc/sys/{name}"
    for name, value in _TUNABLES.items()
)
INIT: Final = ("sh", "-c", f"{_OWN_PROC} && {_REAP}")
KUBELET_INIT: Final = ("sh", "-c", f"{_OWN_PROC} && {_SHOW} && {_REAP}")
_NO_PROGRAMS: Final = system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC
# The kernel waits about a second before it uses a new IPv6 address (RFC 4862 §5.4). A lab has no duplicates.
_SETTINGS: Final = {"net/ipv6/conf/default/accept_dad": "0", "net/ipv6/conf/all/accept_dad": "0"}


def prepare_lab() -> None:
    """In a new mount namespace: nothing done here is seen outside."""
    system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
    system.mount("proc", "/proc", "proc", flags=_NO_PROGRAMS)
    system.mount("tmpfs", "/run", "tmpfs", data="mode=755")
    covered: list[Path] = []
    for place in (*_OWN.values(), *_KUBELET.values()):
        _ensure(place, covered)
    system.mount("tmpfs", str(PLUGINS), "tmpfs", data="mode=755")
    for made in (NODES, ETCD_DATA):
        made.mkdir(parents=True)
    name_hosts([])
    # No name server of the machine can be reached from here. Where none is named, the next is at 127.0.0.1
    # (resolv.conf(5)), where nothing listens: a name that is not in the file of hosts fails at once.
    _NO_SERVERS.write_text("# a lab has no name server; its names are in /etc/hosts\n")
    for own, place in ((_HOSTS, Path("/etc/hosts")), (_NO_SERVERS, Path("/etc/resolv.conf"))):
        if place.exists():
            system.mount(str(own), str(place), flags=system.MS_BIND)


def name_hosts(hosts: Iterable[tuple[str, Ip]]) -> None:
    """By hosts(5), in the file that is mounted in all nodes and pods."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{address} {name}" for name, address in hosts]
    _HOSTS.write_text("\n".join(lines) + "\n")


def node_directory(node: str, name: str) -> Path:
    """A node's `net.d`, `cni` or `weft` directory, as the lab sees it."""
    return NODES / node / name


def make_node(name: str, *, kubelet: bool = False, policies: bool = False) -> None:
    """Leave the lab's namespaces for those of a new node. Runs in `Inside`'s thread.

    What is started next is the first process of the node's pid namespace: INIT, or KUBELET_INIT.
    """
    places = _OWN | _KUBELET if kubelet else _OWN
    for own in places:
        node_directory(name, own).mkdir(parents=True)
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWPID)
    socket.sethostname(name)
    for own, place in places.items():
        system.mount(str(node_directory(name, own)), str(place), flags=system.MS_BIND)
    if policies:
        (KUBE_FLANNEL / POLICIES.name).mkdir()
        system.mount(str(POLICIES), str(KUBE_FLANNEL / POLICIES.name), flags=system.MS_BIND)
    system.mount("tmpfs", "/run", "tmpfs", data="mode=755")
    if kubelet:
        _keep_cgroups()
    else:
        _own_network_view()
    # Shared, so that a pod's namespace file that is unmounted here goes from the other pods' copies too.
    system.mount("none", "/run", flags=system.MS_SHARED)
    for made in ("/run/netns", "/run/flannel"):
        Path(made).mkdir()


def _keep_cgroups() -> None:
    """/sys shows the node's network, and the machine's cgroups as before."""
    aside = Path("/run/.cgroup")
    aside.mkdir()
    system.mount(str(cgroups.ROOT), str(aside), flags=system.MS_BIND | system.MS_REC)
    _own_network_view()
    system.mount(str(aside), str(cgroups.ROOT), flags=system.MS_BIND | system.MS_REC)
    system.unmount(str(aside))


def make_pod(name: str, proc: int) -> tuple[Room, str]:
    """Leave a node's namespaces for those of a new pod; returns them and the path of its network namespace.

    The path is bound in the node, as a container runtime does, so that plugins can open it. `proc` is an open /proc
    that shows the calling thread.
    """
    path = Path("/run/netns") / name
    unshare(CLONE_NEWNET)
    path.touch()
    os.fchdir(proc)
    system.mount("thread-self/ns/net", str(path), flags=system.MS_BIND)
    os.chdir("/")
    unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)
    system.mount("none", "/", flags=system.MS_REC | system.MS_SLAVE)
    socket.sethostname(name)
    _own_network_view()
    return Room.here(proc), str(path)


def forget_pod(path: str) -> None:
    """Runs in the node's namespaces."""
    with suppress(FileNotFoundError):
        system.unmount(path)
        Path(path).unlink()


def _own_network_view() -> None:
    # /sys/class/net shows the namespace that sysfs was mounted in. Inside a container the kernel refuses a new
    # sysfs (the present one has parts hidden): then /sys goes on showing the machine's, and nothing of ours minds.
    with suppress(PermissionError):
        system.mount("sysfs", "/sys", "sysfs", flags=_NO_PROGRAMS)
    for name, value in _SETTINGS.items():
        with suppress(FileNotFoundError):  # a kernel without IPv6
            (Path("/proc/sys") / name).write_text(value)


def _ensure(place: Path, covered: list[Path]) -> None:
    """Make a directory exist without making it on the machine."""
    nearest = place
    while not nearest.exists():
        nearest = nearest.parent
    if nearest == place:
        return
    nearest = nearest.resolve()
    if not any(nearest.is_relative_to(other) for other in covered):
        _cover(nearest)
        covered.append(nearest)
    place.mkdir(parents=True, exist_ok=True)


def _cover(directory: Path) -> None:
    """Put a tmpfs with the same entries over a directory."""
    Path(_ASIDE).mkdir(exist_ok=True)
    system.mount(str(directory), _ASIDE, flags=system.MS_BIND | system.MS_REC)
    mode = directory.stat().st_mode & 0o7777
    system.mount("tmpfs", str(directory), "tmpfs", data=f"mode={mode:o}")
    with os.scandir(_ASIDE) as entries:
        for entry in entries:
            place = directory / entry.name
            if entry.is_symlink():
                place.symlink_to(Path(entry.path).readlink())
                continue
            if entry.is_dir():
                place.mkdir()
            else:
                place.touch()
            system.mount(entry.path, str(place), flags=system.MS_BIND | system.MS_REC)
    system.unmount(_ASIDE)
