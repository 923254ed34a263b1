"""A node whose pods a campaign attaches and detaches with flannel and portmap, and what a runtime knows of them."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from tests.campaign.cninode import Node
from tests.support.cni.call import Meanwhile
from tests.support.netns import Netns
from tests.support.waiting import looks

PODS = 5
SOON = 5
ENV = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/26\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"


class Site(Node):
    """A node with pods that come and go, and what a runtime knows of them."""

    def __init__(self, directory: Path, bin_dir: Path) -> None:
        super().__init__(directory, bin_dir)
        self.free = {f"pod{number}": Netns() for number in range(PODS)}
        self.live: dict[str, tuple[Netns, str]] = {}
        self.said = ""
        (directory / "subnet.env").write_text(ENV)

    def close(self) -> None:
        super().close()
        for netns in (*self.free.values(), *(netns for netns, _ in self.live.values())):
            netns.close()

    def run(
        self, command: str, pod: str, path: str, *, bridge: str = "cni0", meanwhile: Meanwhile | None = None
    ) -> Any:
        """Run the conflist: the result of ADD, True for DEL; None if it failed. `meanwhile` gets each process."""
        portmap = {"cniVersion": "1.0.0", "name": "cbr0", "type": "portmap"}
        said = self.chain(command, [self.flannel(bridge), portmap], container=pod, netns=path, meanwhile=meanwhile)
        self.said = str(said[-1])
        if said[-1].exit != 0:
            return None
        return said[-1].json if command == "ADD" else True

    def flannel(self, bridge: str = "cni0") -> dict[str, Any]:
        """The network's first plugin."""
        return {
            "cniVersion": "1.0.0",
            "name": "cbr0",
            "type": "flannel",
            "subnetFile": str(self.directory / "subnet.env"),
            "dataDir": str(self.directory / "flannel"),
            "ipam": {"dataDir": str(self.directory / "networks")},
            "delegate": {"bridge": bridge, "isDefaultGateway": True, "hairpinMode": True},
        }

    def attach(self, pod: str) -> None:
        """ADD as it should be."""
        result = self.run("ADD", pod, self.free[pod].path)
        assert result, self.said
        self.attached(pod, result)

    def attached(self, pod: str, result: Any) -> None:
        """Note what a runtime knows after an ADD that succeeded."""
        address = str(ip_interface(result["ips"][0]["address"]).ip)
        assert address not in {ip for _, ip in self.live.values()}, f"{address} given twice"
        self.live[pod] = self.free.pop(pod), address

    def detach(self, pod: str) -> None:
        """DEL as it should be."""
        assert self.run("DEL", pod, self.live[pod][0].path), self.said
        self.free[pod] = self.live.pop(pod)[0]

    def renew(self, pod: str) -> None:
        """Have a pod's namespace go, and another one come in its place."""
        self.free[pod].close()
        self.free[pod] = Netns()

    def violations(self) -> list[str]:
        """Say what is there that belongs to no live attachment, and what of those is not."""
        live = dict.fromkeys(self.live)
        reserved = {ip: f"{pod}\r\neth0".encode() for pod, (_, ip) in self.live.items()}
        networks, flannel = self.directory / "networks" / "cbr0", self.directory / "flannel"
        state = self.directory / "state" / "cni"
        records = [json.loads(path.read_text()) for path in state.glob("attachments/*.json")]
        holders = [json.loads(path.read_text()) for path in state.glob("flannel/*.json")]
        found = [
            *_unlike("reservation", {path.name: path.read_bytes() for path in networks.glob("10.*")}, reserved),
            *_unlike("delegate's configuration", dict.fromkeys(path.name for path in flannel.glob("pod*")), live),
            *_unlike("record", Counter(record["container"] for record in records), Counter(live.keys())),
            *_unlike("holder", Counter(holder["container"] for holder in holders), Counter(live.keys())),
        ]
        for pod, (netns, ip) in self.live.items():
            link = netns.rtnl.link("eth0")
            addresses = netns.rtnl.addresses(link.index) if link is not None else []
            if ip not in {str(address.ip) for address in addresses}:
                found.append(f"address of {pod}: lost")
        # Besides them nothing: no end of a pair on the host, no link in a pod that is detached.
        ends = dict.fromkeys(link.name for link in self.host.rtnl.links() if link.kind == "veth")
        found += _unlike("host end", ends, dict.fromkeys(record["veth"] for record in records))
        for pod, netns in self.free.items():
            links = dict.fromkeys(f"{link.name} of {pod}" for link in netns.rtnl.links() if link.name != "lo")
            found += _unlike("link", links, {})
        return found

    def answers(self, pod: str) -> bool:
        """Tell whether packets reach a live pod."""
        return "1 received" in self.host.run(f"ping -c1 -W2 {self.live[pod][1]}", check=False)

    def check_soon(self, seconds: float = SOON) -> None:
        """Everything that is there belongs to a live attachment, and everything of those is there.

        What is done after the answer gets its time.
        """
        for _ in looks(seconds):
            if not (found := self._violations_now()):
                return
        raise AssertionError(found)

    def _violations_now(self) -> list[str]:
        try:
            return self.violations()
        except (OSError, ValueError) as error:  # a file that goes while it is read, or is torn
            return [str(error)]


def _unlike(what: str, have: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*have, *wanted}):
        if name not in have:
            yield f"{what} {name}: lost"
        elif name not in wanted:
            yield f"{what} {name}: left"
        elif have[name] != wanted[name]:
            yield f"{what} {name}: {have[name]!r}, not {wanted[name]!r}"
