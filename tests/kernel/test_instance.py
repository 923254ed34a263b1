"""Names in a network namespace's abstract sockets: whoever holds one keeps a second daemon away."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from tests.support.netns import Netns
from weft.daemon import instance
from weft.model.errors import ConfigError

DEVICE, OTHER = "device/flannel.1", "device/flannel.2"


@pytest.fixture
def claim(netns: Netns) -> Iterator[Callable[..., None]]:
    """Claims names inside, for as long as the test lasts."""
    with ExitStack() as held:

        def inside(*names: str) -> None:
            for claimed in netns.call(partial(instance.claim, names)):
                held.callback(claimed.close)

        yield inside


def test_a_name_that_is_taken_is_refused(claim: Callable[..., None], netns: Netns) -> None:
    claim(DEVICE)
    with pytest.raises(ConfigError, match=r"INST-001 device/flannel\.1: kept by another weftd"):
        claim(DEVICE)
    assert netns.call(lambda: instance.is_claimed(DEVICE))


def test_a_refusal_keeps_no_name(claim: Callable[..., None], netns: Netns) -> None:
    """Sockets that were left open would also end the test: they are warned of, and warnings are errors."""
    claim(DEVICE)
    with pytest.raises(ConfigError) as refusal:
        claim(OTHER, DEVICE)
    # While the error is looked at, its traceback keeps what the call had in its hands.
    assert refusal.value.problems[0].where == DEVICE
    assert not netns.call(lambda: instance.is_claimed(OTHER))
    claim(OTHER)
