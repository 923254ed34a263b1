"""Ports of the host that lead to a container: what an attachment wants, whatever rules make it so (cni.md §5)."""

from typing import Annotated, Final

from weft.model.attachment import Cidr
from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value

# IANA's numbers of the protocols that have ports and that runtimes name.
PROTOCOLS: Final = {"sctp": 132, "tcp": 6, "udp": 17}


class Mapping(Value):
    """One port of the host, of one address or (None) of all, and the container's that it leads to.

    `host_ip` 0.0.0.0 and :: stand for all addresses of their family alone.
    """

    host_port: Annotated[int, Key("hostPort", "The host's port.")] = 0
    container_port: Annotated[int, Key("containerPort", "The container's port.")] = 0
    protocol: Annotated[str, Key("protocol", "`tcp`, `udp` or `sctp`, in any letter case.")] = ""
    host_ip: Annotated[Ip | None, Key("hostIP", "The host's address.", default="all of them")] = None

    def __str__(self) -> str:
        if self.host_ip is None:
            return f"host port {self.host_port}/{self.protocol}"
        return f"host port {self.host_port}/{self.protocol} of {self.host_ip}"


class PortmapConf(Value):
    """What portmap is asked. `backend` is `iptables`, `nftables` or empty: nothing asks for one of them.

    The conditions are further words of a match, in the backend's own language. `mark_bit` None is upstream's
    default; `mark_chain` is empty unless another program's chain sets the mark.
    """

    backend: Annotated[
        str,
        Key(
            "backend",
            "Upstream's rules in `iptables` or `nftables` form.",
            default="what the keys below imply, else weft's own maps in nf_tables",
        ),
    ] = ""
    snat: Annotated[
        bool,
        Key("snat", "Masquerade what would otherwise not come back: from the container itself, from localhost."),
    ] = True
    masq_all: Annotated[bool, Key("masqAll", "Masquerade everything that comes through a mapping.")] = False
    conditions_v4: Annotated[
        tuple[str, ...], Key("conditionsV4", "More words for the rules of IPv4, in the backend's language.")
    ] = ()
    conditions_v6: Annotated[tuple[str, ...], Key("conditionsV6", "The same for IPv6.")] = ()
    mark_bit: Annotated[
        int | None,
        Key("markMasqBit", "The bit of the packet mark that asks for masquerading, 0 to 31 (iptables).", default="13"),
    ] = None
    mark_chain: Annotated[
        str,
        Key(
            "externalSetMarkChain",
            "A chain of others that sets such a mark, instead (iptables).",
            default="one of its own",
        ),
    ] = ""
    mappings: Annotated[
        tuple[Mapping, ...],
        Key("portMappings", "The published ports (capability `portMappings`).", at="runtimeConfig"),
    ] = ()

    def conditions(self, family: int) -> tuple[str, ...]:
        return self.conditions_v4 if family == 4 else self.conditions_v6


class PortMap(Value):
    """What one attachment wants: the configuration, and the container's address of each family, at most one each."""

    conf: PortmapConf
    addresses: tuple[Cidr, ...]

    def of_family(self, family: int) -> "tuple[Cidr, tuple[Mapping, ...]] | None":
        """Return address and mappings of a family, None if it has neither.

        A mapping of a host's address belongs to that address' family, any other to both.
        """
        address = next((each for each in self.addresses if each.version == family), None)
        if address is None:
            return None
        mappings = (each for each in self.conf.mappings if each.host_ip is None or each.host_ip.version == family)
        return address, tuple(mappings)


def target(address: Cidr, mapping: Mapping) -> str:
    """Return where a mapping leads, as iptables and nft write it: `10.1.2.3:80`, `[fd00::3]:80`."""
    ip = f"{address.ip}" if address.version == 4 else f"[{address.ip}]"
    return f"{ip}:{mapping.container_port}"
