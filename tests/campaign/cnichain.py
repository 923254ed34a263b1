"""A whole conflist on a node of campaigns: flannel, bridge, host-local and portmap, with disks that can be full.

`ChainNode` calls it as a runtime does; `violations` says what is there that no live pod has, and what one lacks.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, Final

from tests.campaign.cninode import Node
from tests.support.cni.call import Answer, Meanwhile
from tests.support.netns import Netns
from tests.support.waiting import eventually, looks
from weft.cni.attachment import masq
from weft.cni.host.files import TEMPORARY
from weft.kernel.statefiles import ASIDE

NETWORK: Final = "cbr0"
ENV: Final = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/28\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
ROOM: Final = 13  # addresses of a /28 without network, gateway and broadcast
CNI, STATE = "cni", "state"
DISKS: Final = (CNI, STATE)
_DISK: Final = "size=1m"
SUBJECTS: Final = ("attachments", "flannel", "ipam", "portmap")
SOON: Final = 5


@dataclass(slots=True)
class Pod:
    """A sandbox, and what a runtime remembers of it. `torn` names what a test has damaged of it."""

    name: str
    port: int
    netns: Netns
    result: Any = None
    torn: set[str] = field(default_factory=set)

    @property
    def address(self) -> str:
        return str(ip_interface(self.result["ips"][0]["address"]).ip)


class ChainNode(Node):
    """The chain on a node whose `cni` and `state` directories are small file systems of their own."""

    def __init__(self, directory: Path, bin_dir: Path) -> None:
        super().__init__(directory, bin_dir)
        mounts = []
        for disk in DISKS:
            (directory / disk).mkdir()
            mounts.append(f"mount -t tmpfs -o {_DISK} tmpfs {directory / disk}")
        # They are mounted where nobody else sees them, and go with this process.
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec"]
        held = directory / "mounted"
        self.holder = self.host.popen([*command, f"{'; '.join(mounts)}; touch {held}; exec sleep infinity"])
        eventually(held.exists)
        self.prefix = ("nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "--")
        self.delegate: dict[str, Any] = {}
        self.portmap: dict[str, Any] = {}
        self.said: list[str] = []
        (directory / "subnet.env").write_text(ENV)

    def close(self) -> None:
        self.end()
        self.holder.kill()
        self.holder.wait()
        super().close()

    def see(self, *parts: str) -> Path:
        """Where this process finds a file of the node."""
        return Path(f"/proc/{self.holder.pid}/root{self.directory}", *parts)

    def fill(self, disk: str) -> None:
        """Leave no room on a disk."""
        with suppress(OSError), self.see(disk, "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def relieve(self) -> None:
        """Make room again."""
        for disk in DISKS:
            self.see(disk, "filler").unlink(missing_ok=True)

    def add(self, pod: Pod, meanwhile: Meanwhile | None = None) -> bool:
        """Attach a pod; its result is kept if that succeeds."""
        said = self._run("ADD", pod, self._plugins(pod), meanwhile=meanwhile)
        if said[-1].exit:
            return False
        pod.result = said[-1].json or {}
        return True

    def delete(
        self, pod: Pod, meanwhile: Meanwhile | None = None, *, path: str | None = None, forgetful: bool = False
    ) -> bool:
        """Detach a pod. A `forgetful` runtime has neither result nor mappings."""
        plugins = self._plugins(None if forgetful else pod)
        result = None if forgetful else pod.result
        return not self._run("DEL", pod, plugins, meanwhile=meanwhile, path=path, result=result)[-1].exit

    def check(self, pod: Pod, meanwhile: Meanwhile | None = None) -> bool:
        """CHECK by every plugin of the chain."""
        return not self._run("CHECK", pod, self._plugins(pod), meanwhile=meanwhile, result=pod.result)[-1].exit

    def gc(self, valid: Iterable[str], meanwhile: Meanwhile | None = None) -> bool:
        """GC by every plugin, whatever the others say."""
        names = [{"containerID": name, "ifname": "eth0"} for name in valid]
        lists = {"cni.dev/valid-attachments": names, "cni.dev/attachments": names}
        plugins = [plugin | lists for plugin in self._plugins(None)]
        return not any(answer.exit for answer in self._run("GC", None, plugins, meanwhile=meanwhile, every=True))

    def _plugins(self, pod: Pod | None) -> list[dict[str, Any]]:
        """The conflist, with the mapping of a pod."""
        flannel = {
            "type": "flannel",
            "subnetFile": str(self.directory / "subnet.env"),
            "dataDir": str(self.directory / CNI / "flannel"),
            "ipam": {"dataDir": str(self.directory / CNI / "networks")},
            "delegate": {"isDefaultGateway": True, "hairpinMode": True, **self.delegate},
        }
        portmap = {"type": "portmap", **self.portmap}
        if pod is not None:
            mapping = {"hostPort": pod.port, "containerPort": 80, "protocol": "tcp"}
            portmap["runtimeConfig"] = {"portMappings": [mapping]}
        return [{"cniVersion": "1.1.0", "name": NETWORK, **plugin} for plugin in (flannel, portmap)]

    def _run(
        self, command: str, pod: Pod | None, plugins: list[dict[str, Any]], *, path: str | None = None, **how: Any
    ) -> list[Answer]:
        container, own = (pod.name, pod.netns.path) if pod is not None else ("", "")
        said = self.chain(command, plugins, container=container, netns=own if path is None else path, **how)
        self.said += [f"{command} {container}: {answer}" for answer in said]
        return said


def violations(node: ChainNode, live: Mapping[str, Pod], ended: Iterable[Pod]) -> list[str]:
    """Say what is wrong on a node whose attachments are `live`. `ended` pods have a namespace and no attachment."""
    return [
        *_twice(live),
        *_reservations(node, live),
        *_state_files(node, live),
        *_records(node, live),
        *_links(node, live),
        *_rules(node, live),
        *_cut_off(node, live),
        *_leftovers(ended),
    ]


def violations_soon(node: ChainNode, live: Mapping[str, Pod], ended: Iterable[Pod]) -> list[str]:
    """As `violations`, but what is done after the answer gets its time."""
    for _ in looks(SOON):
        if not (found := violations(node, live, ended)):
            break
    return found


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()] if directory.exists() else []


def _twice(live: Mapping[str, Pod]) -> Iterator[str]:
    addresses = [pod.address for pod in live.values()]
    for address in sorted(set(addresses)):
        if addresses.count(address) > 1:
            yield f"address {address} is given twice"


def _reservations(node: ChainNode, live: Mapping[str, Pod]) -> Iterator[str]:
    store = node.see(CNI, "networks", NETWORK)
    names = {name for name in _names(store) if name != "lock" and not name.startswith("last_reserved_ip.")}
    for pod in live.values():
        if pod.address not in names:
            yield f"address {pod.address} of live {pod.name} is free"
            continue
        owner = (store / pod.address).read_bytes()
        if owner != f"{pod.name}\r\neth0".encode() and "reservation" not in pod.torn:
            yield f"address {pod.address} of live {pod.name} is {owner!r}'s"
    for name in sorted(names - {pod.address for pod in live.values()}):
        yield f"file {name} in the store is nobody's"


def _state_files(node: ChainNode, live: Mapping[str, Pod]) -> Iterator[str]:
    names = {name for name in _names(node.see(CNI, "flannel")) if not name.startswith(TEMPORARY)}
    yield from (f"state file {name} is nobody's" for name in sorted(names - live.keys()))
    yield from (f"state file of live {name} is gone" for name in sorted(live.keys() - names))


def _records(node: ChainNode, live: Mapping[str, Pod]) -> Iterator[str]:
    for subject in SUBJECTS:
        for name in _names(node.see(STATE, "cni", subject)):
            path = node.see(STATE, "cni", subject, name)
            if name.startswith(TEMPORARY) or ASIDE in name:
                continue
            try:
                owner = json.loads(path.read_text())["container"]
            except ValueError:
                owner = next((pod.name for pod in live.values() if subject in pod.torn), "nobody")
            if owner not in live:
                yield f"record {subject}/{name} is {owner}'s"


def _links(node: ChainNode, live: Mapping[str, Pod]) -> Iterator[str]:
    links = {link.index: link for link in node.host.rtnl.links()}
    for pod in live.values():
        end = pod.netns.rtnl.link("eth0")
        peer = links.pop(end.link, None) if end is not None else None
        if peer is None:
            yield f"host end of live {pod.name} is gone"
        elif not peer.up or peer.master not in links or links[peer.master].name != "cni0":
            yield f"host end of live {pod.name} is down or off the bridge"
    yield from (f"link {link.name} is nobody's" for link in links.values() if link.name not in ("lo", "cni0"))


def _rules(node: ChainNode, live: Mapping[str, Pod]) -> Iterator[str]:
    rules = node.host.run("nft list ruleset; iptables-legacy-save 2>/dev/null || true")
    for address in sorted(set(re.findall(r"10\.244\.7\.\d+", rules)) - {pod.address for pod in live.values()}):
        if address != "10.244.7.0":
            yield f"a rule names {address}, which is nobody's"
    for name in sorted(set(re.findall(r"\bsandbox-\d+\b", rules)) - live.keys()):
        yield f"a rule names {name}, which is not live"
    chains = {masq.chain_of(NETWORK, name) for name in live}
    for chain in sorted(set(re.findall(r"\bCNI-[0-9a-f]{24}\b", rules)) - chains):
        yield f"chain {chain} is nobody's"
    for pod in live.values():
        if pod.address not in rules:
            yield f"no rule maps port {pod.port} to live {pod.name}"


def _cut_off(node: ChainNode, live: Mapping[str, Pod]) -> Iterator[str]:
    for pod in live.values():
        end = pod.netns.rtnl.link("eth0")
        has = {str(one.ip) for one in pod.netns.rtnl.addresses(end.index)} if end is not None else set()
        if pod.address not in has or "1 received" not in node.host.run(f"ping -c1 -W2 {pod.address}", check=False):
            yield f"live {pod.name} cannot be reached at {pod.address}"


def _leftovers(ended: Iterable[Pod]) -> Iterator[str]:
    for pod in ended:
        for link in pod.netns.rtnl.links():
            if link.name != "lo":
                yield f"link {link.name} is left in {pod.name}, which is not attached"
