"""What the kernel says of a packet that it drops (drop_monitor)."""

from weft.model.value import Value


class Drop(Value):
    """`reason` is a name of `enum skb_drop_reason` without its prefix, empty before Linux 5.17; `function` is where.

    `device` is the link at which the packet was, empty for none. `frame` are its first bytes, from the link's header
    on, and `protocol` is the ethertype of what follows that.
    """

    reason: str
    function: str
    device: str
    protocol: int
    frame: bytes
