"""Whether a pod ever had an address of a block: only without one a ring may be dropped.

host-local's records say so. A pod with another plugin's address is a neighbour of the node, once they have spoken.
"""

from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from weft.beside import files
from weft.config.flagvalues import ip_or_none

RESERVED: Final = Path("/var/lib/cni/networks")  # host-local's, a directory for each network
NEIGHBOURS: Final = Path("/proc/net/arp")  # those of IPv4; a line for each, after the headline
_LAST: Final = "last_reserved_ip."  # whose content is the address that was given last


def had_a_pod(subnets: Sequence[str], reserved: Path = RESERVED, neighbours: Path = NEIGHBOURS) -> bool:
    """What cannot be read counts as a pod's."""
    nets = [ip_network(subnet) for subnet in subnets]
    try:
        given = [
            files.read_now(file).decode(errors="replace").strip() if file.name.startswith(_LAST) else file.name
            for file in reserved.glob("*/*")
        ]
        given += [line.split(maxsplit=1)[0] for line in files.read_now(neighbours).decode().splitlines()[1:]]
    except OSError:
        return True
    return any(address in net for address in map(ip_or_none, given) if address is not None for net in nets)
