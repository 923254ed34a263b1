"""Other programs: the runtime's networks and plugins, other pod networks, and what manages links and the clock."""

from collections.abc import Iterator
from shlex import quote
from typing import Final

from weft.diag.finding import Command, Finding, check, finding
from weft.diag.sight.node import Sight
from weft.model.text import some_of

# Links by which other pod networks are known, by how their names begin.
_OTHERS: Final = {"cilium_": "Cilium", "cali": "Calico", "weave": "Weave Net", "kube-bridge": "kube-router"}
# Plugins that attach pods to other networks of the node, as by their annotations.
_CALLERS: Final = frozenset({"multus", "multus-shim", "genie"})

_NAMED: Final = 5
_LONG_AGO: Final = 1_600_000_000  # Unix seconds, in 2020: no clock that was ever set is behind that
_TRUST: Final = ("certificate", "token")  # what is judged by the time, in words of problems
_DROP_INS: Final = {
    "NetworkManager": (
        "put into /etc/NetworkManager/conf.d/weft.conf: [keyfile] and"
        " unmanaged-devices=interface-name:flannel*;interface-name:cni*;interface-name:veth*"
    ),
    "systemd-networkd": (
        "put into /etc/systemd/network/00-weft.network: [Match] Name=flannel* cni* veth* and [Link] Unmanaged=yes"
    ),
    "dhcpcd": "put into /etc/dhcpcd.conf: denyinterfaces flannel* cni* veth*",
    "dhclient": "name its links when you start it ('dhclient eth0')",
    "udhcpc": "start it only for other links (-i)",
    "connmand": "put into /etc/connman/main.conf: NetworkInterfaceBlacklist=flannel,cni,veth",
}
_IN_GENERAL: Final = "name flannel*, cni* and veth* in its configuration as links that it does not manage"


@check("plugins", "each network has its plugins", "networks", "plugins")
def _there(sight: Sight) -> Iterator[Finding]:
    for network in sight.networks:
        for plugin in dict.fromkeys(network.plugins):
            if plugin not in sight.plugins:
                where = f"plugin {plugin} of {network.file}"
                hint = "'weft cni install' puts weft's there, 'weft cni install --check' shows what each network needs"
                yield finding("CNI-001", where, "it is not in the plugins' directory", hint)


@check("first-network", "runtimes use the pod network", "networks")
def _first(sight: Sight) -> Iterator[Finding]:
    """The runtime takes the first file, and no network behind it, unless the first calls others."""
    ours = next((network for network in sight.networks if "flannel" in network.plugins), None)
    if ours is not None and sight.networks[0] is not ours and not _CALLERS.intersection(sight.networks[0].plugins):
        first = sight.networks[0]
        seen = f"it comes before {ours.file}, so runtimes use network {first.name} instead of {ours.name}"
        hint = f"If it is a leftover of another pod network: rm {quote(first.file)}"
        yield finding("CLEAN-001", first.file, seen, hint, weight="warning")


@check("leftovers", "no other pod network has left links", "links")
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
            hint = (
                f"Two pod networks disturb each other. If {name} is not used any more, uninstall it as its manual says"
            )
            yield finding("CLEAN-001", name, seen, hint, weight="warning")


@check("link-managers", "no network manager takes links of pods for its own", "managers", "links", "networks")
def _managed(sight: Sight) -> Iterator[Finding]:
    bridges = {bridge.index for bridge in sight.bridges}
    ours = [link.name for link in (*sight.devices, *sight.bridges)]
    ours += [link.name for link in sight.links if link.kind == "veth" and link.master in bridges]
    for manager in sorted({sight.managers[name] for name in ours if name in sight.managers}):
        taken = [name for name in ours if sight.managers.get(name) == manager]
        fix = tuple(
            Command(("nmcli", "device", "set", name, "managed", "no"), f"has NetworkManager leave {name} alone")
            for name in taken
            if manager == "NetworkManager"
        )
        yield finding(
            "HOST-001",
            manager,
            f"it manages {some_of(taken, _NAMED)}",
            f"To make that permanent, {_DROP_INS[manager]}",
            expected="flannel*, cni* and veth* unmanaged",
            weight="warning",
            fix=fix,
        )


@check("device-addresses", "no other program has put addresses on devices between nodes", "links", "programs")
def _foreign(sight: Sight) -> Iterator[Finding]:
    # In a mesh each device has one more, at which others ask the path to it (`weft.config.blocks`).
    is_mesh = sight.daemon is not None and sight.daemon.mesh is not None
    ours = (*sight.subnets, *(sight.networks_of_pods if is_mesh else ()))
    for device in sight.devices if sight.subnets else ():
        for address in sight.addresses_of(device.index):
            ip = address.ip
            if (ip.version == 6 and ip.is_link_local) or any(ip in subnet for subnet in ours):
                continue
            running = sorted(sight.link_programs)
            who = f" (running here: {', '.join(running)})" if running else ""
            hint = "; ".join(_DROP_INS[name] for name in running) or _IN_GENERAL
            command = Command(
                ("ip", "address", "delete", f"{ip}/{address.prefixlen}", "dev", device.name),
                f"takes {ip} off {device.name}",
            )
            yield finding(
                "HOST-001",
                f"link {device.name}",
                f"it has the address {ip}/{address.prefixlen}, which weft did not set{who}",
                f"Have the program that set it ignore this link ({hint}); then remove the address: {command}",
                expected="only addresses of this node's subnet",
                weight="warning",
            )


@check("clock", "the clock is right, as far as is known", "clock")
def _clock(sight: Sight) -> Iterator[Finding]:
    """A clock that was never set; or one that nothing keeps right, where the store refuses for that."""
    if sight.clock is None:
        return
    said = "" if sight.daemon is None or sight.daemon.store is None else str(sight.daemon.store).lower()
    if sight.clock.unix < _LONG_AGO:
        seen = "it is years behind"
    elif not sight.clock.synchronised and any(word in said for word in _TRUST):
        seen = "no program keeps it right, and certificates or tokens between this node and the store are refused"
    else:
        return
    hint = "Certificates and tokens depend on the clock. 'timedatectl' shows it; install chrony or systemd-timesyncd"
    yield finding("HOST-003", "this machine's clock", seen, hint, weight="warning")


CHECKS: Final = (_there, _first, _leftovers, _foreign, _managed, _clock)
