"""bandwidth's configuration (cni.md §6.2): the limits on an attachment's traffic. Texts of errors are upstream's."""

from typing import Final

from weft.model.shaping import Limit, Limits
from weft.wire import cnijson, confkey
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.confkey import Key

_NO_LIMIT: Final = "no limit"
_INGRESS: Final = (
    confkey.maybe_integer("ingressRate", "Bits a second towards the container.", default=_NO_LIMIT, least=0),
    confkey.maybe_integer("ingressBurst", "Bits at once beyond that; needed with a rate.", least=0),
)
_EGRESS: Final = (
    confkey.maybe_integer("egressRate", "Bits a second from the container.", default=_NO_LIMIT, least=0),
    confkey.maybe_integer("egressBurst", "Bits at once beyond that; needed with a rate.", least=0),
)
_RUNTIME: Final = confkey.member(
    "bandwidth",
    "The same four keys (capability `bandwidth`). Ignored if any of them stands above.",
    place="`runtimeConfig`",
)
KEYS: Final = (*_INGRESS, *_EGRESS, _RUNTIME)

_BITS: Final = 8
# In bytes; one less than fits the kernel's 32 bits, as upstream has it.
_BURST_BYTES: Final = 0xFFFFFFFF


def parse(config: Object) -> Limits:
    """Read a request. One key of its own counts more than all that the runtime says. Raises `CniError`."""
    try:
        source = config
        if all(key(config) is None for key in (*_INGRESS, *_EGRESS)):
            source = _RUNTIME(cnijson.member(config, "runtimeConfig"))
        return Limits(ingress=_limit(source, _INGRESS), egress=_limit(source, _EGRESS))
    except JsonError as error:
        raise failure(f"failed to parse network configuration: {error}") from error


def _limit(source: Object, keys: tuple[Key[int | None], Key[int | None]]) -> Limit | None:
    rate, burst = (key(source) or 0 for key in keys)
    if rate and not burst:
        raise failure("if rate is set, burst must also be set")
    if burst and not rate:
        raise failure("if burst is set, rate must also be set")
    if burst // _BITS >= _BURST_BYTES:
        raise failure("burst cannot be more than 4GB")
    if 0 < rate < _BITS:
        raise failure(f"{keys[0].name} of {rate} bits a second is less than one byte", "rates are in bits a second")
    return Limit(rate=rate, burst=burst) if rate else None
