"""The mappings of the specification's vectors (cni.md §7.10), as values and as the runtime writes them."""

from ipaddress import ip_address, ip_interface
from typing import Any

from weft.cni.plugins.portmap.conf import Mapping, PortMap, PortmapConf

LONG_ID = (
    "icee6giejonei6sohng6ahngee7laquohquee9shiGo7fohferakah3Feiyoolu2pei7ciPhoh7shaoX6vai3vuf0ahfaeng8yohb9ceu0daez5"
    "hashee8ooYai5wa3y"
)
_TABLE = (
    (8080, 80, "tcp", ""),
    (8081, 80, "tcp", ""),
    (8080, 81, "udp", ""),
    (8082, 82, "udp", ""),
    (8083, 83, "tcp", "192.168.0.2"),
    (8084, 84, "tcp", "0.0.0.0"),  # noqa: S104 - data
    (8085, 85, "tcp", "2001:db8:a::1"),
    (8086, 86, "tcp", "::"),
)
MAPPINGS = tuple(
    Mapping(host_port=host, container_port=port, protocol=protocol, host_ip=ip_address(ip) if ip else None)
    for host, port, protocol, ip in _TABLE
)


def listed(*mappings: Mapping) -> list[dict[str, Any]]:
    """`runtimeConfig.portMappings`, of all of them by default."""
    return [
        {
            "hostPort": mapping.host_port,
            "containerPort": mapping.container_port,
            "protocol": mapping.protocol,
            **({"hostIP": str(mapping.host_ip)} if mapping.host_ip is not None else {}),
        }
        for mapping in mappings or MAPPINGS
    ]


def wanted(*addresses: str, mappings: tuple[Mapping, ...] = MAPPINGS, **conf: Any) -> PortMap:
    """What an attachment with these addresses wants."""
    conf_ = PortmapConf(mappings=mappings, **conf)
    return PortMap(conf=conf_, addresses=tuple(ip_interface(address) for address in addresses))
