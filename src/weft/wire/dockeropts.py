"""mk-docker-opts: subnet.env as dockerd's options (flannel.md §9).

A unit or a shell reads the file as variables: `DOCKER_OPT_*` for each option, and one for all of them.
"""

import re
import sys
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final

from weft.model.errors import Problem, WeftError
from weft.model.value import Value
from weft.wire import subnetenv

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION: Final = re.compile(r"DOCKER_OPT_[A-Za-z0-9_]*")
_SPECIAL: Final = re.compile(r'["$\\`]')  # within double quotes, for sh and for systemd's EnvironmentFile
_GATEWAY: Final = 0x2  # RTF_GATEWAY of linux/route.h
_SUBNET: Final = re.compile(r"[0-9.]+/[0-9]{1,2}")


class DockerOpts(Value):
    """All known variables, and the network of dockerd's bridge, if known."""

    variables: Mapping[str, str]
    bridge: IPv4Network | None


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def read(text: str, path: str, environ: Mapping[str, str], *, ip_masq: bool) -> DockerOpts:
    """Make options of subnet.env, whose variables come before those of the environment.

    Without `ip_masq` there is no option for it. `WeftError` names each unusable line and variable.
    """
    file = subnetenv.variables_in(text)
    variables = {**environ, **file.values}
    problems = [_problem(path, complaint, "KEY=value") for complaint in file.complaints]

    def refuse(key: str, expected: str) -> None:
        seen = f"{key}={variables[key][:60]!r}"
        problems.append(_problem(path if key in file.values else "the environment", seen, expected))

    bridge = None
    if subnet := variables.get("FLANNEL_SUBNET"):
        bridge = _network(subnet)
        if bridge is None:
            refuse("FLANNEL_SUBNET", "an IPv4 address and a length, as 10.1.74.1/24")
        variables["DOCKER_OPT_BIP"] = f"--bip={subnet}"
    if mtu := variables.get("FLANNEL_MTU"):
        if not (mtu.isascii() and mtu.isdigit()):
            refuse("FLANNEL_MTU", "a whole number")
        variables["DOCKER_OPT_MTU"] = f"--mtu={mtu}"
    if ip_masq and (by_flannel := variables.get("FLANNEL_IPMASQ")):
        if by_flannel not in ("true", "false"):
            refuse("FLANNEL_IPMASQ", "true or false")
        # Who masquerades is either the daemon or dockerd.
        variables["DOCKER_OPT_IPMASQ"] = f"--ip-masq={'false' if by_flannel == 'true' else 'true'}"
    if problems:
        raise WeftError(*problems)
    return DockerOpts(variables=variables, bridge=bridge)


def render(opts: DockerOpts, key: str, *, individual: bool, combined: bool) -> str:
    """The single options, then all in the variable `key`, after its old text."""
    options = {name: value for name, value in sorted(opts.variables.items()) if _OPTION.fullmatch(name)}
    earlier = opts.variables.get(key, "")
    lines = dict(options) if individual else {}
    if combined:
        lines[key] = f"{earlier} " * bool(earlier) + "".join(f" {value}" for value in options.values())
    return "".join(f'{name}="{_SPECIAL.sub(_escaped, value)}"\n' for name, value in lines.items())


def in_the_way(opts: DockerOpts, routes: str) -> Problem | None:
    """Say if a route by a gateway covers the bridge's network; `routes` is /proc/net/route."""
    for line in routes.splitlines()[1:]:
        device, destination, gateway, flags, _, _, _, mask, *_ = line.split()
        if int(flags, 16) & _GATEWAY and opts.bridge == IPv4Network(f"{_address(destination)}/{_address(mask)}"):
            seen = f"the route {opts.bridge} via {_address(gateway)} dev {device} leads away from dockerd's bridge"
            hint = f"Remove it: ip route del {opts.bridge}"
            return Problem(code="ROUTE-002", where="main table", seen=seen, hint=hint)
    return None


def _network(text: str) -> IPv4Network | None:
    try:
        return IPv4Interface(text).network if _SUBNET.fullmatch(text) else None
    except ValueError:
        return None


def _address(text: str) -> IPv4Address:
    """/proc/net/route has the four bytes as a number in the machine's order."""
    return IPv4Address(int(text, 16).to_bytes(4, sys.byteorder))


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _problem(where: str, seen: str, expected: str) -> Problem:
    hint = "Until this is mended, the file for dockerd stays as it was."
    return Problem(code="LEASE-001", where=where, seen=seen, expected=expected, hint=hint)
