"""A network cut into numbered blocks, as a mesh shares it out: block n is the n-th subnet of each family."""

from ipaddress import IPv4Network, IPv6Network
from typing import Any

from weft.config.netconf import NetConf, Pool
from weft.model.errors import ConfigError, Problem
from weft.model.lease import WayKind
from weft.model.mesh.records import MAX_BLOCKS, Layout
from weft.model.net import Ip, Net, Subnets


def layout_of(text: str, netconf: NetConf) -> Layout:
    """How many blocks the network `text` has, and which are never given: those below `SubnetMin`, and the first few.

    Each node has two addresses at the network's beginning, at which its paths are asked. Raises
    `ConfigError` where no block is left.
    """
    pools, blocks = _pools(netconf), _blocks(netconf)
    first = max(max(_number(pool, int(pool.first)), -(-2 * blocks // _size(pool))) for pool in pools)
    if first >= blocks:
        where, hint = "SubnetMin and SubnetMax", "Take a larger network, or a larger SubnetLen"
        seen = f"all of the {blocks} subnets below SubnetMax are in use or below SubnetMin"
        raise ConfigError(Problem(code="CONF-002", where=where, seen=seen, expected="room for a node", hint=hint))
    return Layout(net_conf=text, blocks=blocks, first=first)


def asked_at(netconf: NetConf, subnet: Net, kind: WayKind) -> Ip:
    """The address at which the path of a kind to the node with this subnet is asked.

    For block n of N that is *network + n* by WireGuard, and *network + N + n* by vxlan.
    """
    [pool] = [pool for pool in _pools(netconf) if pool.network.version == subnet.version]
    base: Ip = pool.network.network_address
    return base + (_blocks(netconf) if kind == "vxlan" else 0) + _number(pool, int(subnet.network_address))


def subnets_of(netconf: NetConf, block: int) -> Subnets:
    v4 = None if netconf.v4 is None else IPv4Network(_base(netconf.v4, block))
    v6 = None if netconf.v6 is None else IPv6Network(_base(netconf.v6, block))
    return v4, v6


def _pools(netconf: NetConf) -> list[Pool[Any, Any]]:
    return [pool for pool in (netconf.v4, netconf.v6) if pool is not None]


def _blocks(netconf: NetConf) -> int:
    """Of the smaller pool."""
    return min(MAX_BLOCKS, *(_number(pool, int(pool.last)) + 1 for pool in _pools(netconf)))


def _size(pool: Pool[Any, Any]) -> int:
    size: int = 1 << (pool.network.max_prefixlen - pool.subnet_len)
    return size


def _number(pool: Pool[Any, Any], address: int) -> int:
    return (address - int(pool.network.network_address)) // _size(pool)


def _base(pool: Pool[Any, Any], block: int) -> tuple[int, int]:
    return int(pool.network.network_address) + block * _size(pool), pool.subnet_len
