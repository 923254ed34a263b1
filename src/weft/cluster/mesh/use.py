"""Whether a pod ever had an address of a block, by host-local's records: only without one a ring may be dropped."""

from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from weft.beside import files
from weft.config.options import ip_or_none

RESERVED: Final = Path("/var/lib/cni/networks")  # host-local's, a directory for each network
_LAST: Final = "last_reserved_ip."  # whose content is the address that was given last


def had_a_pod(subnets: Sequence[str], reserved: Path = RESERVED) -> bool:
    """What cannot be read counts as a pod's."""
    nets = [ip_network(subnet) for subnet in subnets]
    try:
        given = [
            files.read_now(file).decode(errors="replace").strip() if file.name.startswith(_LAST) else file.name
            for file in reserved.glob("*/*")
        ]
    except OSError:
        return True
    return any(address in net for address in map(ip_or_none, given) if address is not None for net in nets)
