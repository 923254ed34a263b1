"""Limits on a pod's traffic: as they are asked for (cni.md §6.2), and as the kernel keeps them."""

from weft.model.value import Value


class Limit(Value):
    """At most `rate` bits a second, and `burst` bits at once beyond it."""

    rate: int
    burst: int


class Limits(Value):
    """`ingress` is towards the container, `egress` away from it; None is no limit."""

    ingress: Limit | None = None
    egress: Limit | None = None

    def __bool__(self) -> bool:
        return self.ingress is not None or self.egress is not None


class Bucket(Value):
    """A token bucket (tc-tbf(8)). `rate` in bytes a second, `limit` of its queue in bytes, `buffer` in ticks."""

    rate: int
    limit: int
    buffer: int
