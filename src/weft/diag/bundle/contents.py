"""What is in a bundle, by the names of its files; what is read back of it. Pure.

`manifest.json` says the form, `sight.json` is the sight of which verbs answer, `events.json` is the daemon's history;
the rest is for people. The form's number changes when a file means something else than before; a field that is new does
not change it.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from weft.diag.bundle import secrets
from weft.diag.bundle.plain import plain, read
from weft.diag.sight.node import Sight
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import EventsSince
from weft.model.value import Value, field

FORM: Final = 1
MANIFEST: Final = "manifest.json"
_SIGHT: Final = "sight.json"
_EVENTS: Final = "events.json"
_MOST_VALUES: Final = (
    2_000_000  # in a file, ten times those of a node with 5,000 peers: the smallest cost 70 bytes each
)

V = TypeVar("V", bound=Value)


class Manifest(Value):
    """What a bundle says of itself: its form, weft's version that made it, the node, and when, in Unix seconds.

    `unseen` says of each text that could not be had, why.
    """

    form: int
    weft: str
    node: str
    made: float
    unseen: dict[str, str] = field(default_factory=dict)


class Bundle(Value):
    """A node at one moment. `told` is its daemon's history, None if no daemon answered."""

    manifest: Manifest
    sight: Sight
    told: EventsSince | None = None


def files_of(bundle: Bundle, texts: Mapping[str, str]) -> dict[str, bytes]:
    """All files of a bundle; `texts` are those for people, which have no secrets any more."""
    made = {MANIFEST: _written(bundle.manifest), _SIGHT: _written(bundle.sight)}
    if bundle.told is not None:
        made[_EVENTS] = _written(bundle.told)
    return made | {name: text.encode(errors="backslashreplace") for name, text in texts.items()}


def bundle_of(files: Mapping[str, bytes], where: str) -> Bundle:
    """Read a bundle, which may be anybody's. Raises `ConfigError` for what is none, or of a form not known here."""
    manifest = _data(files, MANIFEST, where)
    form = manifest.get("form") if isinstance(manifest, dict) else None
    if form != FORM:
        made = f"weft {manifest.get('weft')}" if isinstance(manifest, dict) else "another program"
        hint = f"It was made by {made}; read it with that version"
        raise refused(where, f"a bundle of form {form!r}", expected=f"form {FORM}", hint=hint)
    told = _read(EventsSince, _data(files, _EVENTS, where), f"{where}: {_EVENTS}") if _EVENTS in files else None
    return Bundle(
        manifest=_read(Manifest, manifest, f"{where}: {MANIFEST}"),
        sight=_read(Sight, _data(files, _SIGHT, where), f"{where}: {_SIGHT}"),
        told=told,
    )


def refused(where: str, seen: str, *, expected: str = "a bundle of `weft bundle`", hint: str = "") -> ConfigError:
    """The error of a file that is no bundle."""
    return ConfigError(Problem(code="BUNDLE-001", where=where, seen=seen, expected=expected, hint=hint))


def _written(value: Value) -> bytes:
    return msgspec.json.format(msgspec.json.encode(secrets.data_without(plain(value))), indent=1)


def _data(files: Mapping[str, bytes], name: str, where: str) -> Any:
    if name not in files:
        raise refused(where, f"there is no {name} in it")
    data = files[name]
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise refused(f"{where}: {name}", f"more than {_MOST_VALUES} values")
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refused(f"{where}: {name}", f"it is no JSON: {error}") from None


def _read(kind: type[V], data: Any, where: str) -> V:
    try:
        return read(kind, data)
    except (ValueError, OverflowError) as error:
        raise refused(where, str(error)) from None
