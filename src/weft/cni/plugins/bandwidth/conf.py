"""bandwidth's configuration (cni.md §6.2): the limits on an attachment's traffic. Texts of errors are upstream's."""

from typing import Annotated, Final

from weft.model.kernel.shaping import Limit, Limits
from weft.model.keyed import Key
from weft.model.value import Value, field
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

_BITS: Final = 8
# In bytes; one less than fits the kernel's 32 bits, as upstream has it.
_BURST_BYTES: Final = 0xFFFFFFFF


class Rates(Value):
    """Limits as they are written, in bits."""

    ingress_rate: Annotated[
        int | None, Key("ingressRate", "Bits a second towards the container.", default="no limit", least=0)
    ] = None
    ingress_burst: Annotated[
        int | None, Key("ingressBurst", "Bits at once beyond that; needed with a rate.", least=0)
    ] = None
    egress_rate: Annotated[
        int | None, Key("egressRate", "Bits a second from the container.", default="no limit", least=0)
    ] = None
    egress_burst: Annotated[
        int | None, Key("egressBurst", "Bits at once beyond that; needed with a rate.", least=0)
    ] = None


class BandwidthConf(Rates):
    """What bandwidth is asked."""

    runtime: Annotated[
        Rates,
        Key(
            "bandwidth",
            "The same four keys (capability `bandwidth`). Ignored if any of them stands above.",
            at="runtimeConfig",
        ),
    ] = field(default_factory=Rates)


def parse(config: Object) -> Limits:
    """Read a request. One key of its own counts more than all that the runtime says. Raises `CniError`."""
    asked = decode_or_fail(BandwidthConf, config, failed="failed to parse network configuration")
    own = (asked.ingress_rate, asked.ingress_burst, asked.egress_rate, asked.egress_burst)
    rates: Rates = asked.runtime if own == (None,) * len(own) else asked
    return Limits(
        ingress=_limit("ingressRate", rates.ingress_rate or 0, rates.ingress_burst or 0),
        egress=_limit("egressRate", rates.egress_rate or 0, rates.egress_burst or 0),
    )


def _limit(key: str, rate: int, burst: int) -> Limit | None:
    if rate and not burst:
        raise failure("if rate is set, burst must also be set")
    if burst and not rate:
        raise failure("if burst is set, rate must also be set")
    if burst // _BITS >= _BURST_BYTES:
        raise failure("burst cannot be more than 4GB")
    if 0 < rate < _BITS:
        raise failure(f"{key} of {rate} bits a second is less than one byte", "rates are in bits a second")
    return Limit(rate=rate, burst=burst) if rate else None
