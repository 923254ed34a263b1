"""Since when policies are in effect on a node, for people."""

import time
from collections.abc import Iterator
from typing import Final

from weft.model.node.nodestate import PolicyEffect
from weft.model.text import shortly, some_of

_NAMED: Final = 5


def in_effect(effect: PolicyEffect) -> Iterator[str]:
    """Since when policies are as they are, and what is not so yet."""
    if effect.since is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(effect.since))
        before = " or before: the kernel had them when weftd began" if effect.found else ""
        ago = shortly(max(0.0, time.time() - effect.since))
        yield f"In effect since {at}{before} ({ago} ago)."
    if effect.changing:
        before = "what was before holds" if effect.since is not None else "it has just begun"
        yield f"Not in effect yet, {before}: {some_of(effect.changing, _NAMED)}."
