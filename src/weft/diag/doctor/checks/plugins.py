"""What the runtime uses: networks and their plugins; and what other pod networks have left."""

from collections.abc import Iterator
from shlex import quote
from typing import Final

from weft.diag.finding import Check, Finding
from weft.diag.sight.node import Sight
from weft.model.errors import Problem

# Links by which other pod networks are known, by how their names begin.
_OTHERS: Final = {"cilium_": "Cilium", "cali": "Calico", "weave": "Weave Net", "kube-bridge": "kube-router"}
# Plugins that attach pods to other networks of the node, as by their annotations.
_CALLERS: Final = frozenset({"multus", "multus-shim", "genie"})


def _there(sight: Sight) -> Iterator[Finding]:
    for network in sight.networks:
        for plugin in dict.fromkeys(network.plugins):
            if plugin not in sight.plugins:
                where = f"plugin {plugin} of {network.file}"
                hint = "'weft cni install' puts weft's there, 'weft cni install --check' shows what each network needs"
                problem = Problem(code="CNI-001", where=where, seen="it is not in the plugins' directory", hint=hint)
                yield Finding(problem=problem)


def _first(sight: Sight) -> Iterator[Finding]:
    """The runtime takes the first file; a network of pods behind it is not used, unless that one calls others."""
    ours = next((network for network in sight.networks if "flannel" in network.plugins), None)
    if ours is not None and sight.networks[0] is not ours and not _CALLERS.intersection(sight.networks[0].plugins):
        first = sight.networks[0]
        seen = f"it comes before {ours.file}, so runtimes use network {first.name} instead of {ours.name}"
        hint = f"If another pod network has left it: rm {quote(first.file)}"
        problem = Problem(code="CLEAN-001", where=first.file, seen=seen, hint=hint)
        yield Finding(problem=problem, weight="warning")


def _leftovers(sight: Sight) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    used = {plugin for network in sight.networks for plugin in network.plugins}
    for link in sight.links:
        for prefix, name in _OTHERS.items():
            if link.name.startswith(prefix) and name.lower() not in used:  # Canal has Calico's by design
                found.setdefault(name, []).append(link.name)
    for name, links in found.items():
        if sight.subnet_env is not None:
            seen = f"{len(links)} of its links are here: {', '.join(links[:3])}"
            hint = "Two pod networks disturb each other. If it is not used any more, uninstall it as its manual says"
            problem = Problem(code="CLEAN-001", where=name, seen=seen, hint=hint)
            yield Finding(problem=problem, weight="warning")


CHECKS: Final = (
    Check(name="plugins", about="each network has its plugins", needs=("networks", "plugins"), find=_there),
    Check(name="first-network", about="runtimes use the pod network", needs=("networks",), find=_first),
    Check(name="leftovers", about="no other pod network has left links", needs=("links",), find=_leftovers),
)
