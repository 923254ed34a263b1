"""docs/reference/plugins/*.md, made from the plugins and from the keys that their parsers read.

`python -m tests.support.pluginsdoc` writes them. What a page says beyond that, a lead and an example, stands here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from weft.cni import plugins
from weft.cni.skel import Plugin
from weft.wire.confkey import Key

DIRECTORY = Path(__file__).parents[2] / "docs" / "reference" / "plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page has beside its keys. `conf` is the module of the parser, empty where there is nothing to configure.

    `example` is the plugin's object in a list; `first` goes before it, for a plugin that needs a predecessor.
    """

    lead: str
    conf: str
    example: dict[str, Any]
    first: dict[str, Any] | None = None


_ADDRESSES = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
_BRIDGE = {"type": "bridge", "isGateway": True, "ipam": _ADDRESSES}

PAGES = {
    "bandwidth": Page(
        lead=(
            "Limits what goes to and from the container, at the host's end of its veth. It comes after the plugin that "
            "makes the interface. What the container sends is shaped on an IFB device of its own, `bwp…`."
        ),
        conf="bandwidthconf",
        first=_BRIDGE,
        example={
            "type": "bandwidth",
            "ingressRate": 8000000,
            "ingressBurst": 800000,
            "capabilities": {"bandwidth": True},
        },
    ),
    "firewall": Page(
        lead=(
            "Lets a host that drops forwarded packets pass those of the container, and can keep bridges apart. "
            "It comes after the plugin that makes the interface."
        ),
        conf="firewallconf",
        first=_BRIDGE,
        example={"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"},
    ),
    "host-local": Page(
        lead=(
            "Gives addresses from ranges, and remembers each as a file that upstream's host-local reads too. "
            "It is an IPAM plugin: another plugin names it in `ipam` and runs it."
        ),
        conf="ipamconf",
        example={
            "type": "bridge",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10"}], [{"subnet": "fd00:1::/64"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            },
        },
    ),
    "loopback": Page(
        lead="Sets `lo` up in the container. Runtimes call it by themselves, before a network's own plugins.",
        conf="",
        example={"type": "loopback"},
    ),
    "sbr": Page(
        lead=(
            "Routes by source: what the container sends from the interface's addresses leaves by that interface. "
            "For containers with several interfaces; it comes after the plugin that makes one."
        ),
        conf="sbrconf",
        first=_BRIDGE,
        example={"type": "sbr"},
    ),
    "static": Page(
        lead=(
            "Gives the addresses that it is told, and keeps no state. "
            "It is an IPAM plugin: another plugin names it in `ipam` and runs it."
        ),
        conf="staticconf",
        example={
            "type": "bridge",
            "ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}]},
        },
    ),
    "tuning": Page(
        lead=(
            "Sets sysctls in the container, and what its interface is like; DEL puts the interface back. "
            "It comes after the plugin that makes the interface. If `/etc/cni/tuning/allowlist.conf` exists, each "
            "sysctl's name must match one of its lines, which are regular expressions."
        ),
        conf="tuningconf",
        first=_BRIDGE,
        example={"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "mtu": 1400},
    ),
}

_VERBS = (
    ("CHECK", "check", "verifies what it has made"),
    ("GC", "gc", "frees what belongs to attachments that are gone"),
    ("STATUS", "status", "says whether it could serve an ADD"),
)


def keys_of(page: Page) -> tuple[Key[Any], ...]:
    """The keys that the plugin's parser reads."""
    return import_module(f"weft.wire.{page.conf}").KEYS if page.conf else ()


def args_of(page: Page) -> dict[str, str]:
    """The arguments in CNI_ARGS that the plugin's parser reads."""
    return getattr(import_module(f"weft.wire.{page.conf}"), "ARGS", {}) if page.conf else {}


def conflist(page: Page) -> dict[str, Any]:
    """The example as a network list."""
    chain = [page.first, page.example] if page.first else [page.example]
    return {"name": "example", "cniVersion": "1.1.0", "plugins": chain}


def render(name: str) -> str:
    """Return a plugin's page."""
    page, plugin = PAGES[name], plugins.find(name)
    assert plugin is not None
    source = f"src/weft/wire/{page.conf}.py and " if page.conf else ""
    parts = [
        f"# {name}\n",
        f"<!-- Made by `make docs` from {source}tests/support/pluginsdoc.py: change that. -->\n",
        f"{page.lead}\n",
        "\n".join(_facts(plugin)) + "\n",
        "## Configuration\n",
        *_tables(page),
        "## Example\n",
        f"```json\n{_shown(conflist(page))}\n```\n",
    ]
    return "\n".join(parts)


def _shown(network: dict[str, Any]) -> str:
    """Print a list with a line for each plugin."""
    inner = ",\n".join(f"    {json.dumps(plugin)}" for plugin in network["plugins"])
    head = "".join(f"  {json.dumps(key)}: {json.dumps(network[key])},\n" for key in ("name", "cniVersion"))
    return f'{{\n{head}  "plugins": [\n{inner}\n  ]\n}}'


def _facts(plugin: Plugin) -> Iterator[str]:
    yield f"- CNI versions: {', '.join(plugin.versions)}"
    for verb, attribute, does in _VERBS:
        yield f"- {verb} {does if getattr(plugin, attribute) else 'succeeds; there is nothing to do'}"


def _tables(page: Page) -> Iterator[str]:
    keys, args = keys_of(page), args_of(page)
    if not keys and not args:
        yield "None of its own.\n"
    for place, group in groupby(keys, key=lambda key: key.place):
        if place:
            yield f"In {place}:\n"
        yield "| Key | Type | Default | Meaning |\n|---|---|---|---|\n" + "".join(map(_row, group))
    if args:
        yield "In `CNI_ARGS`:\n"
        yield "| Name | Meaning |\n|---|---|\n" + "".join(f"| `{name}` | {about} |\n" for name, about in args.items())


def _row(key: Key[Any]) -> str:
    cells = (f"`{key.name}`", key.kind, key.default, key.about)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def index() -> str:
    """Return the list of all pages."""
    rows = "".join(
        f"| [{name}]({name}.md) | {page.lead.partition('. ')[0].rstrip('.')} |\n" for name, page in PAGES.items()
    )
    head = "# Plugins\n\n<!-- Made by `make docs` from tests/support/pluginsdoc.py: change that. -->\n"
    return f"{head}\n| Plugin | What it does |\n|---|---|\n{rows}"


def pages() -> dict[str, str]:
    """Return every file of the directory with its content."""
    return {"README.md": index(), **{f"{name}.md": render(name) for name in PAGES}}


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for file, content in pages().items():
        (DIRECTORY / file).write_text(content)
