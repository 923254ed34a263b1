"""docs/reference/plugins/*.md, made from the plugins and from the keys that their values are read by.

What a page says beyond that, a lead and an example, stands here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.docs.keys import Row, rows_of
from scripts.docs.keys import table as table_of
from weft.cni import registry
from weft.cni.plugins.bandwidth import BandwidthConf
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.plugins.firewall.conf import FirewallConf
from weft.cni.plugins.flannel import conf as flannelconf
from weft.cni.plugins.hostlocal.conf import IpamConf
from weft.cni.plugins.portmap.conf import PortmapConf
from weft.cni.plugins.ptp import PtpConf
from weft.cni.plugins.sbr.conf import SbrConf
from weft.cni.plugins.static import StaticKeys
from weft.cni.plugins.tuning.conf import TuningKeys
from weft.cni.sdk.startup import Plugin
from weft.model import keyed
from weft.model.keyed import Arg
from weft.model.value import Value

DIRECTORY = Path(__file__).parents[2] / "docs" / "reference" / "plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page has beside its keys, which are those of `conf` and of `inner`, by the path to its object.

    `example` is the plugin's object in a list; `first` goes before it, for a plugin that needs a predecessor.
    """

    lead: str
    conf: type[Value] | None
    example: dict[str, Any]
    first: dict[str, Any] | None = None
    inner: tuple[tuple[str, type[Value]], ...] = ()


_ADDRESSES = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
_BRIDGE = {"type": "bridge", "isGateway": True, "ipam": _ADDRESSES}

PAGES = {
    "flannel": Page(
        lead=(
            "Attaches pods to the node's subnet of the flannel network. "
            "It reads the subnet from the daemon's file and has another plugin do the work, `bridge` unless told."
        ),
        conf=flannelconf.FlannelConf,
        inner=(("ipam", flannelconf.Ipam),),
        example={"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}},
    ),
    "bridge": Page(
        lead="Joins the container to a bridge of the node by a pair of interfaces. An IPAM plugin gives its addresses.",
        conf=BridgeConf,
        example={**_BRIDGE, "hairpinMode": True, "ipMasq": True},
    ),
    "ptp": Page(
        lead="Joins the container to the node by a pair of interfaces, without a bridge. The node routes to it.",
        conf=PtpConf,
        example={"type": "ptp", "ipMasq": True, "ipam": _ADDRESSES},
    ),
    "loopback": Page(
        lead="Sets `lo` up in the container. Runtimes call it by themselves, before a network's own plugins.",
        conf=None,
        example={"type": "loopback"},
    ),
    "host-local": Page(
        lead=(
            "Gives addresses from ranges, and remembers each as a file that upstream's host-local reads too. "
            "It is an IPAM plugin: another one names it in `ipam` and runs it."
        ),
        conf=IpamConf,
        example={
            "type": "bridge",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10"}], [{"subnet": "fd00:1::/64"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            },
        },
    ),
    "static": Page(
        lead=(
            "Gives the addresses that are configured. It is an IPAM plugin: another one names it in `ipam` and runs it."
        ),
        conf=StaticKeys,
        example={
            "type": "bridge",
            "ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}]},
        },
    ),
    "portmap": Page(
        lead="Makes ports of the node lead to the container. It comes behind a plugin that has made the interface.",
        conf=PortmapConf,
        example={"type": "portmap", "capabilities": {"portMappings": True}},
        first=_BRIDGE,
    ),
    "bandwidth": Page(
        lead="Limits the container's traffic. It comes behind a plugin that has made the interface.",
        conf=BandwidthConf,
        example={"type": "bandwidth", "ingressRate": 100000000, "ingressBurst": 10000000},
        first=_BRIDGE,
    ),
    "firewall": Page(
        lead="Lets the container's traffic through the node's firewall. It comes behind a plugin that gives addresses.",
        conf=FirewallConf,
        example={"type": "firewall", "ingressPolicy": "same-bridge"},
        first=_BRIDGE,
    ),
    "tuning": Page(
        lead="Changes settings of the container's network and of its interface. It comes behind the one that makes it.",
        conf=TuningKeys,
        example={"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "mtu": 1400},
        first=_BRIDGE,
    ),
    "sbr": Page(
        lead=(
            "Routes what a container with several interfaces sends by its source address. "
            "It comes behind the plugin that has made the further interface."
        ),
        conf=SbrConf,
        example={"type": "sbr"},
        first=_BRIDGE,
    ),
}

_VERBS = (
    ("CHECK", "check", "verifies what it has made"),
    ("GC", "gc", "frees what belongs to attachments that are gone"),
    ("STATUS", "status", "says whether it could serve an ADD"),
)


def keys_of(page: Page) -> tuple[Row, ...]:
    """The keys that the plugin reads, by the object that they stand in."""
    if page.conf is None:
        return ()
    rows = [*rows_of(page.conf), *(row for place, kind in page.inner for row in rows_of(kind, place))]
    places = list(dict.fromkeys(row.place for row in rows))
    return tuple(sorted(dict.fromkeys(rows), key=lambda row: places.index(row.place)))


def args_of(page: Page) -> dict[str, str]:
    """The arguments in CNI_ARGS that the plugin's parser reads."""
    sources = [source for field in keyed.fields(page.conf) for source in field.sources] if page.conf else []
    return {source.name: source.about for source in sources if isinstance(source, Arg)}


def conflist(page: Page) -> dict[str, Any]:
    """The example as a network list."""
    chain = [page.first, page.example] if page.first else [page.example]
    return {"name": "example", "cniVersion": "1.1.0", "plugins": chain}


def render(name: str) -> str:
    """Return a plugin's page."""
    page, plugin = PAGES[name], registry.find(name)
    assert plugin is not None
    source = f"src/{page.conf.__module__.replace('.', '/')}.py and " if page.conf else ""
    parts = [
        f"# {name}\n",
        f"<!-- Made by `make docs` from {source}scripts/docs/plugins.py: change that. -->\n",
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
    tables: dict[str, list[str]] = {}
    for place in dict.fromkeys(row.place for row in keys):
        tables.setdefault(table_of(row for row in keys if row.place == place), []).append(place)
    for table, places in tables.items():
        if places != [""]:
            yield f"In {' and '.join(places)}:\n"
        yield table
    if args:
        yield "In `CNI_ARGS`:\n"
        yield "| Name | Meaning |\n|---|---|\n" + "".join(f"| `{name}` | {about} |\n" for name, about in args.items())


def index() -> str:
    """Return the list of all pages."""
    rows = "".join(
        f"| [{name}]({name}.md) | {page.lead.partition('. ')[0].rstrip('.')} |\n" for name, page in PAGES.items()
    )
    head = "# Plugins\n\n<!-- Made by `make docs` from scripts/docs/plugins.py: change that. -->\n"
    return f"{head}\n| Plugin | What it does |\n|---|---|\n{rows}"


def pages() -> dict[str, str]:
    """Return every file of the directory with its content."""
    return {"README.md": index(), **{f"{name}.md": render(name) for name in PAGES}}


def write() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for file, content in pages().items():
        (DIRECTORY / file).write_text(content)
