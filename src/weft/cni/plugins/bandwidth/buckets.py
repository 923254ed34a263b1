"""How an attachment's limits are kept: token buckets and the name of the device for its egress (cni.md §6.2)."""

import hashlib
from typing import Final

from weft.model.attachment import Attachment
from weft.model.kernel.shaping import Bucket, Limit

# include/net/pkt_sched.h: a tick is 64 ns, on every kernel since 2.6.31 (/proc/net/psched says it as 3e8 40 f4240).
_TICK_NANOSECONDS: Final = 64
_MICROSECONDS: Final = 1_000_000
_LATENCY_DIVISOR: Final = 40  # a packet waits at most 25 ms in the queue
_LARGEST: Final = 0xFFFFFFFF
_BITS: Final = 8
_NAME_HEX: Final = 12


def bucket_of(limit: Limit) -> Bucket:
    """Return the bucket for a limit. Its queue and its size stop where the kernel's 32 bits do: upstream's wrap."""
    rate, burst = limit.rate // _BITS, limit.burst // _BITS
    ticks = burst * _MICROSECONDS // rate * 1000 // _TICK_NANOSECONDS
    return Bucket(rate=rate, limit=min(rate // _LATENCY_DIVISOR + burst, _LARGEST), buffer=min(ticks, _LARGEST))


def ifb_names(attachment: Attachment) -> tuple[str, str]:
    """Return upstream's name for the device of an attachment's egress, and one that no other interface shares.

    Upstream's is made of network and container alone, so that a second interface of the two needs another.
    """
    shared = attachment.network + attachment.container_id
    return _name(shared), _name(f"{shared}\0{attachment.ifname}")


def _name(text: str) -> str:
    return f"bwp{hashlib.sha512(text.encode('utf-8', 'surrogateescape')).hexdigest()[:_NAME_HEX]}"
