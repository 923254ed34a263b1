"""What `weft cni add …` makes of its arguments, as cnitool does, and whether a namespace and an interface are there."""

import errno
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from weft.cni.host.openat import fs_magic
from weft.kernel.namespaces import CLONE_NEWNET, setns
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import ConfigError, Problem

_ID_DIGITS: Final = 20
# linux/magic.h: a network namespace's file is on nsfs, or is a link of procfs.
_NAMESPACES: Final = (0x6E736673, 0x9FA0)


def container_id(netns: str) -> str:
    """The same for every call, and the same as cnitool's."""
    digest = hashlib.sha512(os.fsencode(os.path.abspath(netns))).hexdigest()
    return f"cnitool-{digest[:_ID_DIGITS]}"


def parse_args(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [pair.split("=") for pair in text.split(";")] if text else []
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            seen = f'invalid CNI_ARGS pair "{"=".join(pair)}"'
            raise ConfigError(Problem(code="FLAG-001", where="--args", seen=seen, expected="K=V[;K=V…]"))
    return tuple((key, value) for key, value in pairs)


def parse_capability_args(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        seen = str(error)
    else:
        if isinstance(found, dict):
            return found
        seen = text
    expected = """a JSON object such as {"portMappings": […]}"""
    raise ConfigError(Problem(code="FLAG-001", where="--cap-args", seen=seen, expected=expected))


def has_interface(netns: str, ifname: str) -> bool:
    def look() -> bool:
        fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(fd, CLONE_NEWNET)
        finally:
            os.close(fd)
        with Rtnl.open() as rtnl:
            return rtnl.link(ifname) is not None

    # A thread that has entered another namespace ends there.
    with ThreadPoolExecutor(max_workers=1) as thread, suppress(OSError):
        return netns != "" and _is_namespace(netns) and thread.submit(look).result()
    return False


def may_be_alive(netns: str) -> bool:
    """Only a path that leads to no namespace proves that it is gone."""
    if not netns:
        return True
    try:
        return _is_namespace(netns)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)


def _is_namespace(netns: str) -> bool:
    return fs_magic(netns) in _NAMESPACES
