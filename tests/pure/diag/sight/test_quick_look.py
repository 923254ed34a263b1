"""What the daemon's cheap look says of what it does not read."""

import errno
from contextvars import copy_context
from typing import NoReturn

import pytest

from weft.diag.sight import quick_look
from weft.model.errors import TYPED


def test_the_doctor_is_named_as_people_elsewhere_type_it(monkeypatch: pytest.MonkeyPatch):
    def too_long(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EFBIG, "too long")

    monkeypatch.setattr(quick_look, "said", too_long)
    context = copy_context()
    context.run(TYPED.set, lambda command: f"kubectl exec x -- {command}")
    with pytest.raises(OSError, match="more than 56 KiB of rules; `kubectl exec x -- weft doctor` reads them"):
        context.run(quick_look._short, ("nft",), 1)
