"""Calls of plugins by chance that no sane runtime makes: pure, one seed gives the same calls on every machine.

A case says what the plugin may answer: the codes of an error, and whether success would be wrong.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from tests.campaign.hostile.values import ARGS, IFNAMES, NAMES, NAMESPACES, TEXTS, VERSIONS, Json, value

# What a plugin may say of a configuration that JSON and framework let through (cni.md §1.8).
BODY: Final = frozenset({1, 2, 3, 4, 6, 7, 8, 999})
STATUS: Final = BODY | {50, 51}
FRAME: Final = 1 << 20  # what fits into one: configuration and environment
VERBS: Final = ("ADD",) * 6 + ("DEL",) * 3 + ("CHECK",) * 2 + ("GC", "GC", "STATUS", "VERSION")

REQUIRED: Final = {
    "ADD": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    "CHECK": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"),
    "GC": ("CNI_PATH",),
    "STATUS": ("CNI_PATH",),
}


@dataclass(slots=True, kw_only=True)
class Case:
    """One call. `codes`: what an error may say; `fails`: success would be wrong. `what` is for people."""

    plugin: str
    command: str
    env: dict[str, str | bytes]
    config: Json
    stdin: bytes = b""
    codes: frozenset[int] = BODY
    fails: bool = False
    what: list[str] = field(default_factory=list)

    def encoded(self) -> "Case":
        """Itself, with its configuration as text."""
        self.stdin = json.dumps(self.config).encode()
        return self

    def again(self, command: str) -> "Case":
        """The same with another verb."""
        return replace(self, command=command, env={**self.env, "CNI_COMMAND": command})

    def wrong(self, what: str, *codes: int) -> None:
        """Note what the frame of all plugins finds wrong with it now: one of these codes, or an earlier one's."""
        self.codes = frozenset(codes) | (self.codes if self.fails else frozenset())
        self.fails = True
        self.what.append(what)


def make(
    chance: Random, good: Mapping[str, Json], env: Mapping[str, Mapping[str, str]], *, framed: bool = True
) -> Case:
    """A call of one of the plugins of `good`, which holds a good configuration of each; `env` their environment.

    `framed`: it goes to a daemon, so that what fits into a frame is a limit.
    """
    plugin = chance.choice(sorted(good))
    case = Case(plugin=plugin, command=chance.choice(VERBS), env=dict(env[plugin]), config=deepcopy(good[plugin]))
    case.config["cniVersion"] = (
        "1.1.0" if case.command in ("GC", "STATUS") else chance.choice(("1.1.0", "1.0.0", "0.4.0"))
    )
    if case.command == "STATUS":
        case.codes = STATUS
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        before = deepcopy(case.config)
        _change_body(chance, case)
        if len(json.dumps(case.config)) > FRAME // 3:
            case.config = before  # too much is a case of its own
    if case.command == "VERSION":
        case.codes = frozenset()  # whatever the rest is, which is not looked at
    elif chance.random() < 0.25:
        chance.choice((_change_name, _change_version))(chance, case)
    case.stdin = json.dumps(case.config).encode()
    if chance.random() < 0.2:
        _change_text(chance, case)
    if chance.random() < 0.25:
        chance.choice((_change_variable, _change_environment, *[_change_size] * framed))(chance, case)
    case.env["CNI_COMMAND"] = case.command
    return case


# --- The configuration


def _places(node: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all members, and items, of a configuration."""
    pairs: Sequence[tuple[Any, Json]] = ()
    if isinstance(node, dict):
        pairs = [(key, item) for key, item in node.items() if path or key not in ("name", "cniVersion")]
    elif isinstance(node, list):
        pairs = list(enumerate(node))
    return [place for key, item in pairs for place in ((*path, key), *_places(item, (*path, key)))]


def _change_body(chance: Random, case: Case) -> None:
    places = _places(case.config)
    if not places:
        return
    place = chance.choice(places)
    node = case.config
    for key in place[:-1]:
        node = node[key]
    key = place[-1]
    match chance.randrange(10):
        case 0:
            del node[key]
        case 1 if isinstance(node, dict):
            node[key.swapcase()] = value(chance)
        case 2 if isinstance(node, list):
            node += [deepcopy(node[key])] * chance.choice((1, 2, 50))
        case 3 if isinstance(node[key], str):
            node[key] += chance.choice(TEXTS)
        case _:
            node[key] = value(chance)
    case.what.append(f"{'.'.join(map(str, place))} changed")


def _change_name(chance: Random, case: Case) -> None:
    match chance.randrange(4):
        case 0:
            case.config.pop("name", None)
            case.wrong("no name", 7)
        case 1:
            case.config["name"] = chance.choice((7, True, [], {}, 1.5))
            case.wrong("name of another type", 6)
        case _:
            case.config["name"] = chance.choice((*NAMES, "", None))
            case.wrong("no such name", 7)


def _change_version(chance: Random, case: Case) -> None:
    another = chance.random() < 0.3
    case.config["cniVersion"] = chance.choice((7, True, [], {}, 1.5) if another else VERSIONS)
    if case.command == "DEL":  # what was made must go, whatever the version is by now
        case.what.append("another version")
    elif another:
        case.wrong("version of another type", 6)
    else:
        case.wrong("no such version", 1, 6)


def _change_text(chance: Random, case: Case) -> None:
    text = case.stdin
    inside = text.rstrip(b"}")
    changes: list[tuple[str, bytes, tuple[int, ...]]] = [
        ("cut off", text[: chance.randrange(len(text))], (6,)),
        ("not UTF-8", text.replace(b'"', b'"\xff', 1), (6,)),
        ("a NUL byte", text[:1] + b"\0" + text[1:], (6,)),
        ("a control character", text.replace(b'"', b'"\x01\n', 1), (6,)),
        ("a mark of byte order", b"\xef\xbb\xbf" + text, (6,)),
        ("UTF-16", text.decode("utf-8").encode("utf-16"), (6,)),
        ("a list", b"[" + text + b"]", (6,)),
        ("a string", json.dumps(text.decode()).encode(), (6,)),
        ("nested too deeply", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, (6,)),
        ("lists too deep", inside + b',"z":' + b"[" * 200_000, (6,)),
        ("an endless number", inside + b',"z":' + b"9" * 5000 + b"}" * (len(text) - len(inside)), (6,)),
        ("no number", inside + b',"z":NaN' + b"}" * (len(text) - len(inside)), (6,)),
        ("an infinite number", inside + b',"z":1e999' + b"}" * (len(text) - len(inside)), (6,)),
        ("something behind it", text + chance.choice((b"{}", b"x", b"\0", text)), (6,)),
        ("nothing", chance.choice((b"", b" ", b"\n\n")), (6,)),
        ("noise", chance.randbytes(200), (6,)),
        ("more than a frame", text + b" " * (1 << 20), (5,)),
    ]
    if case.command == "VERSION":
        case.stdin = chance.choice(changes)[1]
        return
    if chance.random() < 0.2:
        key = json.dumps(chance.choice(sorted(set(case.config) - {"name", "cniVersion"}) or ["x"]))
        again = json.dumps(value(chance))
        again = again if len(again) < FRAME // 8 else "1"
        case.stdin = b"{" + f"{key}: {again}, ".encode() + text[1:-1] + f", {key}: {again}}}".encode()
        case.what.append(f"{key} twice")
        return
    what, case.stdin, codes = chance.choice(changes)
    case.wrong(what, *codes)


# --- The environment


def _change_environment(chance: Random, case: Case) -> None:
    """What the frame must refuse."""
    required = REQUIRED.get(case.command, ())
    if not required:
        return
    match chance.randrange(4):
        case 0:
            name = chance.choice(required)
            if chance.random() < 0.5:
                case.env.pop(name, None)
            else:
                case.env[name] = ""
            case.wrong(f"no {name}", 4)
        case 1 if "CNI_CONTAINERID" in required:
            case.env["CNI_CONTAINERID"] = chance.choice(
                [name for name in NAMES if "\0" not in name and name.isprintable()]
            )
            case.wrong("no such container", 4)
        case 2 if "CNI_IFNAME" in required:
            case.env["CNI_IFNAME"] = chance.choice(IFNAMES)
            case.wrong("no such interface", 4)
        case _:
            case.command = chance.choice(("FOO", "add", "ADD ", "A" * 10_000, "\n", "UPDATE", "Ä"))
            case.wrong("no such command", 4)


def _change_size(chance: Random, case: Case) -> None:
    """More variables than a frame takes."""
    if case.command == "VERSION":
        return
    number, size = chance.choice(((400, 1), (6, 100_000)))
    case.env |= {f"CNI_{each}": "x" * size for each in range(number)}
    case.wrong("too much for a frame", 4)


def _change_variable(chance: Random, case: Case) -> None:
    """What may be refused."""
    match chance.randrange(5):
        case 0 | 1:
            case.env["CNI_ARGS"] = chance.choice(ARGS)
            case.what.append("odd CNI_ARGS")
        case 2:
            case.env["CNI_NETNS"] = chance.choice((*NAMESPACES, "/proc/self/ns/net"))
            case.what.append(f"CNI_NETNS {case.env['CNI_NETNS']!r:.40}")
        case 3:
            case.env["CNI_PATH"] = chance.choice(("/none", ":::", "relative", "/" * 4096, "/bin", "\n", "../bin"))
            case.what.append("odd CNI_PATH")
        case _ if case.command != "VERSION":
            case.env[chance.choice(("CNI_ARGS", "CNI_NETNS", "CNI_PATH", "CNI_X"))] = b"\xff\xfe" + chance.randbytes(
                9
            ).replace(b"\0", b"")
            case.wrong("a variable that is not UTF-8", 4)
