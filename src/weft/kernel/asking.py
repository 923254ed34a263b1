"""Asks a daemon of this network namespace, at its control socket.

Each question raises `Unavailable` without an answer.
"""

import socket
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from weft.kernel import daemons
from weft.kernel.unixsockets import is_root, peer_of
from weft.model.errors import Problem, Unavailable
from weft.model.node.nodestate import HealthState, NodeState

if TYPE_CHECKING:
    from weft.model.node.history import EventsSince
    from weft.model.node.planned import Plan

_SECONDS: Final = 10.0  # for all of an answer

T = TypeVar("T")


def choose(wanted: str | None) -> str:
    """Return the name of the daemon that is meant. `Unavailable` if there is none, or several and no name."""
    names = daemons.living()
    if wanted is not None and wanted not in names:
        raise Unavailable(_problem(f"--instance {wanted}", "no daemon of that name", expected=" or ".join(names)))
    if not names:
        hint = "Start weftd, or enter its network namespace; its log says why it ended"
        raise Unavailable(_problem("this network namespace", "no weftd runs here", hint=hint))
    if wanted is None and len(names) > 1:
        raise Unavailable(_problem("--instance", f"{len(names)} daemons run here", expected=" or ".join(names)))
    return wanted or names[0]


def ask(name: str, question: bytes) -> bytes:
    where = f"weftd of instance {name}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_SECONDS)
            asking.connect(daemons.address(name))
            if not is_root(asking):
                raise Unavailable(_problem(where, "another user's process has its name"))
            asking.sendall(question)
            answer = daemons.said(asking, seconds=_SECONDS)
    except OSError as error:
        seen = f"does not answer within {_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error.strerror)
        raise Unavailable(_problem(where, seen, hint="It may be stopped or stuck: see its log")) from error
    if not answer:
        raise Unavailable(_problem(where, "gave no answer", hint="It may be of another version"))
    return answer


def process(name: str) -> int:
    """Return the daemon's process id, 0 if it is in another pid namespace."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_SECONDS)
            asking.connect(daemons.address(name))
            pid, uid = peer_of(asking)
            return 0 if uid else pid
    except OSError as error:
        raise Unavailable(_problem(f"weftd of instance {name}", str(error.strerror))) from error


def state(name: str) -> NodeState:
    return _read(name, daemons.ASK_STATE, NodeState)


def events(name: str, after: int) -> "EventsSince":
    """Return what happened after the event of that number."""
    from weft.model.node.history import EventsSince

    return _read(name, daemons.ask_events(after), EventsSince)


def plan(name: str) -> "Plan":
    """Return what it would do now."""
    from weft.model.node.planned import PlanAnswer

    answer = _read(name, daemons.ASK_PLAN, PlanAnswer)
    if answer.plan is None:
        raise Unavailable(*answer.unable)
    return answer.plan


def health(name: str) -> HealthState:
    return _read(name, daemons.ASK_HEALTH, HealthState)


def _read(name: str, question: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(ask(name, question), type=kind)
    except msgspec.MsgspecError as error:
        hint = "It may have ended meanwhile, or be of another version"
        raise Unavailable(_problem(f"weftd of instance {name}", f"its answer is broken: {error}", hint=hint)) from error


def _problem(where: str, seen: str, *, expected: str = "", hint: str = "") -> Problem:
    return Problem(code="INST-003", where=where, seen=seen, expected=expected, hint=hint)
