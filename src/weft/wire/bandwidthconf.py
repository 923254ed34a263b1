"""bandwidth's configuration (cni.md §6.2): the limits on an attachment's traffic. Texts of errors are upstream's."""

from typing import Final

from weft.model.shaping import Limit, Limits
from weft.wire import cnijson
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError, Object

_KEYS: Final = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
_BITS: Final = 8
# In bytes; one less than fits the kernel's 32 bits, as upstream has it.
_BURST_BYTES: Final = 0xFFFFFFFF


def parse(config: Object) -> Limits:
    """Read a request. One key of its own counts more than all that the runtime says. Raises `CniError`."""
    try:
        source = config
        if all(cnijson.value_of(config, key) is None for key in _KEYS):
            source = cnijson.member(cnijson.member(config, "runtimeConfig"), "bandwidth")
        return Limits(ingress=_limit(source, "ingress"), egress=_limit(source, "egress"))
    except JsonError as error:
        raise failure(f"failed to parse network configuration: {error}") from error


def _limit(source: Object, direction: str) -> Limit | None:
    rate, burst = (cnijson.integer(source, f"{direction}{key}", least=0) for key in ("Rate", "Burst"))
    if rate and not burst:
        raise failure("if rate is set, burst must also be set")
    if burst and not rate:
        raise failure("if burst is set, rate must also be set")
    if burst // _BITS >= _BURST_BYTES:
        raise failure("burst cannot be more than 4GB")
    if 0 < rate < _BITS:
        raise failure(f"{direction}Rate of {rate} bits a second is less than one byte", "rates are in bits a second")
    return Limit(rate=rate, burst=burst) if rate else None
