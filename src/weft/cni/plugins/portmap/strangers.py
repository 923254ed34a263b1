"""Port rules of upstream's form that come before ours: whose they are, and whether anybody is there any more.

Upstream's portmap leaves them when a pod goes without DEL, and a new pod's port would lead to the dead one's address.
They are removed if nobody has that address; else the port is the other's.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_interface
from typing import Final

from weft.cni.attachment import podaddresses
from weft.cni.host import programs
from weft.cni.host.host import Host
from weft.cni.plugins.portmap import backends, iptables, nft
from weft.cni.plugins.portmap.conf import Mapping, PortMap
from weft.kernel.netfilter.iptables import legacy_tables
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.attachment import Attachment
from weft.model.kernel.nftset import Table
from weft.model.net import FAMILIES, Ip
from weft.model.value import Value
from weft.wire import iptables as iptablestext
from weft.wire import nft as nfttext
from weft.wire.cni import CniError, failure

_NAT: Final = {4: Table("ip", "nat"), 6: Table("ip6", "nat")}
_TO_IPTABLES: Final = re.compile(
    r"(?:-d (?P<host>\S+) )?-p (?P<protocol>\w+) .*--dport (?P<port>\d+) .*-j DNAT --to-destination (?P<leads>\S+)"
)
_TO_NFT: Final = re.compile(
    r"(?:ip6? daddr (?P<host>\S+) )?(?P<protocol>\w+) dport (?P<port>\d+) dnat (?:ip6? )?to (?P<leads>\S+)"
    r'(?: comment "(?P<container>.*)")?$'
)


class Stray(Value):
    """`chain` is iptables', and `container` nft's word for whose the rule is; `host` None is all addresses."""

    family: int
    protocol: str
    port: int
    host: Ip | None
    pod: Ip
    chain: str = ""
    container: str = ""

    def __str__(self) -> str:
        return f"{self.place}, which leads to {self.pod}"

    @property
    def place(self) -> str:
        rule = f"chain {self.chain} of iptables" if self.chain else f"a rule of container {self.container} in nft"
        return f"{rule} table nat" if self.chain else f"{rule} table {nft.table_of(self.family)}"

    def takes(self, mapping: Mapping) -> bool:
        if (self.protocol, self.port) != (mapping.protocol, mapping.host_port):
            return False
        return self.host is None or self.host == mapping.host_ip

    def is_of(self, attachment: Attachment) -> bool:
        own = iptables.chain_of(attachment.network, attachment.container_id)
        return self.chain == own or self.container == attachment.container_id


def of_iptables(have: iptablestext.Table, family: int) -> Iterator[Stray]:
    chains = dict.fromkeys(map(iptablestext.target, have.get(iptables.ENTRY, ())))
    for chain in filter(None, chains):
        yield from _read(_TO_IPTABLES, have.get(chain, ()), family, chain=chain)


def of_nft(have: nfttext.Listing, family: int) -> Iterator[Stray]:
    for chain in nft.PORT_CHAINS:
        yield from _read(_TO_NFT, nfttext.rules_of(have, chain), family)


def _read(form: "re.Pattern[str]", rules: Iterable[str], family: int, chain: str = "") -> Iterator[Stray]:
    for rule in rules:
        found = form.match(rule)
        if found is None:
            continue
        leads = found["leads"].rpartition(":")[0].strip("[]")
        try:
            yield Stray(
                family=family,
                protocol=found["protocol"],
                port=int(found["port"]),
                host=ip_interface(found["host"]).ip if found["host"] else None,
                pod=ip_address(leads),
                chain=chain,
                container="" if chain else found["container"] or "",
            )
        except ValueError:  # a range, a name: somebody else's
            continue


def look(nf: NfSocket | None, family: int) -> list[Stray]:
    """A program runs only where netlink says that there are any rules."""
    has_iptables = nf is not None and nf.has_chain(_NAT[family], iptables.ENTRY)
    has_nft = nf is not None and nf.has_table(nft.table_of(family))
    found: list[Stray] = []
    if has_iptables or "nat" in legacy_tables(family):
        found += of_iptables(programs.iptables_table(family), family)
    if has_nft:
        found += of_nft(programs.nft_table(nft.table_of(family)), family)
    return found


def netfilter_if_any(host: Host) -> NfSocket | None:
    try:
        return host.netfilter
    except OSError:
        return None


def in_the_way(host: Host, attachment: Attachment, wanted: PortMap) -> Iterator[tuple[Mapping, Stray]]:
    for address in wanted.addresses:
        mappings = wanted.mappings_to(address)
        for stray in look(netfilter_if_any(host), address.version) if mappings else ():
            taken = [mapping for mapping in mappings if stray.takes(mapping)]
            if taken and not _is_shared(host, attachment, stray, address.ip):
                yield from ((mapping, stray) for mapping in taken)


def _is_shared(host: Host, attachment: Attachment, stray: Stray, pod: Ip) -> bool:
    return stray.is_of(attachment) and (stray.pod == pod or not podaddresses.is_nobodys(host.rtnl, stray.pod))


def clear(host: Host, attachment: Attachment, wanted: PortMap) -> list[Stray]:
    """Returns what was removed. `CniError` if somebody lives there."""
    found = list(in_the_way(host, attachment, wanted))
    own = {address.ip for address in wanted.addresses}  # an address is given to one pod at a time: it was another's
    for mapping, stray in found:
        if stray.pod not in own and not podaddresses.is_nobodys(host.rtnl, stray.pod):
            hint = "HOSTPORT-001: a host port leads to one pod; give this one another port or address"
            raise failure(f"cannot map {mapping}: taken by {stray}", hint)
    strays = list(dict.fromkeys(stray for _, stray in found))
    for stray in strays:
        remove(host, stray)
    return strays


def remove(host: Host, stray: Stray) -> None:
    if stray.chain:
        backends.remove_chain(host, stray.family, stray.chain, [stray.pod])
    else:
        backends.remove_comment(host, stray.family, stray.container, [stray.pod])


def collect(host: Host, valid: frozenset[str]) -> list[str]:
    """They name no network, so that nothing else tells whose they are."""
    problems = []
    for family in FAMILIES:
        try:
            for stray in dict.fromkeys(look(netfilter_if_any(host), family)):
                others = stray.container and stray.container not in valid
                if others and podaddresses.is_nobodys(host.rtnl, stray.pod):
                    remove(host, stray)
        except (CniError, OSError) as error:
            problems.append(str(error))
    return problems
