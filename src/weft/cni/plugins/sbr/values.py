"""Source-based routing: what sbr is asked, and what it makes of one address (cni.md §6.5)."""

from weft.model.attachment import Cidr
from weft.model.net import Ip
from weft.model.value import Value, field


class SbrConf(Value):
    """What sbr is asked. `table` None: a free one for each address; `gateways` are by family, 4 or 6."""

    table: int | None = None
    gateways: dict[int, Ip] = field(default_factory=dict)
    source_hints: bool = False


class Source(Value):
    """Packets from `address` are routed by `table`. `routes` are positions in the list of the interface's routes."""

    address: Cidr
    table: int
    priority: int
    gateway: Ip | None = None
    routes: tuple[int, ...] = ()
