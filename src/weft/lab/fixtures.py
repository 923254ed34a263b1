"""A pytest fixture for labs: `pytest_plugins = ["weft.lab.fixtures"]` in a conftest.py."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from weft.lab.testing import Lab, lab


@pytest.fixture(scope="module")
def weft_lab() -> Iterator[Callable[..., Lab]]:
    """Start labs that end with the module's tests: `weft_lab(nodes=2)`, with what `weft.lab.testing.lab` takes.

    Asked for the same again, it returns the lab that is up.
    """
    with ExitStack() as stack:
        labs: dict[tuple[tuple[str, Any], ...], Lab] = {}

        def started(**options: Any) -> Lab:
            key = tuple(sorted(options.items()))
            if key not in labs:
                labs[key] = stack.enter_context(lab(**options))
            return labs[key]

        yield started
