"""subnet.env: for the CNI plugin, container engines and the daemon's next start (flannel.md §3).

`parse` reads it back at a start and leaves out what cannot be read, with a complaint for the log; `parse_for_cni` reads
it as the flannel plugin does, with errors that the kubelet shows.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_network
from typing import Final, TypeVar

from weft.model.errors import ConfigError, Problem
from weft.model.net import Net
from weft.model.value import Value

NetT = TypeVar("NetT", IPv4Network, IPv6Network)

_NETWORKS: Final = ("FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK")
_SUBNETS: Final = ("FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET")
_MTU: Final = "FLANNEL_MTU"
_IPMASQ: Final = "FLANNEL_IPMASQ"
_ASSIGNMENT: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*[=:]\s*(.*?)\s*", re.ASCII | re.DOTALL)
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE: Final = re.compile(r"'([^']*)'\s*(?:#.*)?")
_VARIABLE: Final = re.compile(r"\\\$|\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))", re.ASCII)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


class Variables(Value):
    """What a dotenv file sets, the last of several values, and complaints about other lines."""

    values: Mapping[str, str]
    complaints: tuple[str, ...] = ()


class SubnetEnv(Value):
    """A family that is off has None twice; `mtu` is the largest packet of a pod."""

    network_v4: IPv4Network | None
    subnet_v4: IPv4Network | None
    network_v6: IPv6Network | None
    subnet_v6: IPv6Network | None
    mtu: int
    ip_masq: bool


def render(env: SubnetEnv) -> str:
    """Byte for byte as flanneld does (flannel.md §3.1).

    A subnet carries its first host, the address of the plugin's bridge.
    """
    lines: list[str] = []
    if env.network_v4 is not None and env.subnet_v4 is not None:
        gateway = IPv4Interface((int(env.subnet_v4.network_address) + 1, env.subnet_v4.prefixlen))
        lines += [f"FLANNEL_NETWORK={env.network_v4}", f"FLANNEL_SUBNET={gateway}"]
    if env.network_v6 is not None and env.subnet_v6 is not None:
        gateway_v6 = IPv6Interface((int(env.subnet_v6.network_address) + 1, env.subnet_v6.prefixlen))
        lines += [f"FLANNEL_IPV6_NETWORK={env.network_v6}", f"FLANNEL_IPV6_SUBNET={gateway_v6}"]
    lines += [f"{_MTU}={env.mtu}", f"{_IPMASQ}={'true' if env.ip_masq else 'false'}"]
    return "".join(f"{line}\n" for line in lines)


class Previous(Value):
    """An earlier run's subnet, and the networks whose masquerade rules are to be replaced."""

    network_v4: IPv4Network | None = None
    subnet_v4: IPv4Network | None = None
    network_v6: IPv6Network | None = None
    subnet_v6: IPv6Network | None = None
    complaints: tuple[str, ...] = ()

    @property
    def networks(self) -> tuple[Net, ...]:
        return tuple(net for net in (self.network_v4, self.network_v6) if net is not None)


class Networks(Value):
    """The networks of a key's comma list, and complaints about its other entries."""

    networks: tuple[Net, ...]
    complaints: tuple[str, ...] = ()


def parse(text: str) -> Previous:
    """Read the file back (flannel.md §3.3). A key that is missing, unreadable or has several networks is None."""
    variables = variables_in(text)
    complaints = list(variables.complaints)

    def single(key: str, kind: type[NetT]) -> NetT | None:
        found = _list(variables.values.get(key, ""), key, kind)
        complaints.extend(found.complaints)
        if len(found.networks) > 1:
            complaints.append(f"{key} has {len(found.networks)} networks where one is expected; none is used")
        network = found.networks[0] if len(found.networks) == 1 else None
        return network if isinstance(network, kind) else None

    return Previous(
        network_v4=single(_NETWORKS[0], IPv4Network),
        subnet_v4=single(_SUBNETS[0], IPv4Network),
        network_v6=single(_NETWORKS[1], IPv6Network),
        subnet_v6=single(_SUBNETS[1], IPv6Network),
        complaints=tuple(complaints),
    )


def parse_list(text: str, key: str) -> Networks:
    """Read one key as a list of networks."""
    kind = IPv6Network if "IPV6" in key else IPv4Network
    return _list(variables_in(text).values.get(key, ""), key, kind)


def _list(value: str, key: str, kind: Callable[..., Net]) -> Networks:
    networks: list[Net] = []
    complaints: list[str] = []
    for entry in filter(None, (part.strip() for part in value.split(","))):
        try:
            networks.append(kind(_cidr(entry), strict=False))
        except ValueError:
            complaints.append(f"{key}: {entry[:60]!r} is not a network of this family and is left out")
    return Networks(networks=tuple(networks), complaints=tuple(complaints))


def _cidr(text: str) -> str:
    """Insist on a decimal length, as Go does: Python would take `10.1.0.0` and `10.1.0.0/255.255.0.0` as well."""
    length = text.partition("/")[2]
    if not (length.isascii() and length.isdigit()) or "%" in text:
        raise ValueError(text)
    return text


class PluginEnv(Value):
    """For the flannel plugin: networks for routes, subnets for ranges, IPv4's first."""

    networks: tuple[Net, ...]
    subnets: tuple[Net, ...]
    mtu: int
    ip_masq: bool


@lru_cache(maxsize=8)
def parse_for_cni(text: str, path: str) -> PluginEnv:
    """Read as the flannel plugin does (flannel.md §10.3): split at the first `=`, no trimming, no quotes.

    `ConfigError` names every key that is missing or unreadable. Cached: every ADD reads the same text.
    """
    values, problems = _plugin_values(text, path)

    def read(key: str, texts: list[str]) -> list[Net]:
        try:
            return [ip_network(_cidr(text), strict=False) for text in texts]
        except ValueError:
            problems.append(_problem(path, f"{key}={values[key][:60]!r}", f"{key}=ADDRESS/LENGTH"))
            return []

    networks = [net for key in _NETWORKS if key in values for net in read(key, values[key].split(","))]
    subnets = [net for key in _SUBNETS if key in values for net in read(key, [values[key]])]
    mtu = values.get(_MTU, "0")
    if not (mtu.isascii() and mtu.isdigit() and len(mtu) <= 10 and int(mtu) < 2**32):
        problems.append(_problem(path, f"{_MTU}={mtu[:60]!r}", "a whole number"))
    if problems:
        raise ConfigError(*problems)
    return PluginEnv(
        networks=tuple(dict.fromkeys(networks)), subnets=tuple(subnets), mtu=int(mtu), ip_masq=values[_IPMASQ] == "true"
    )


def _plugin_values(text: str, path: str) -> tuple[dict[str, str], list[Problem]]:
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for line in text.split("\n"):
        key, equals, value = line.removesuffix("\r").partition("=")
        if key not in (*_NETWORKS, *_SUBNETS, _MTU, _IPMASQ):
            continue
        if equals:
            values[key] = value
        else:
            problems.append(_problem(path, f"the line {key!r} has no value", f"{key}=VALUE"))
    if not problems and (missing := _missing(values)):
        problems.append(_problem(path, f"missing {', '.join(missing)}", "a file written by weftd or flanneld"))
    return values, problems


def _missing(values: dict[str, str]) -> list[str]:
    """The plugin needs a network and a subnet of one family at least."""
    groups = (_NETWORKS, _SUBNETS, (_MTU,), (_IPMASQ,))
    return [key for group in groups if not any(key in values for key in group) for key in group]


def _problem(path: str, seen: str, expected: str) -> Problem:
    return Problem(
        code="LEASE-001",
        where=path,
        seen=seen,
        expected=expected,
        hint="The daemon writes this file once the node has a subnet; its log says what it waits for.",
    )


def absent(path: str, reason: str) -> ConfigError:
    """The file could not be loaded; `reason` is the operating system's."""
    return ConfigError(
        Problem(
            code="LEASE-001",
            where=path,
            seen=f"flannel's subnet.env file could not be loaded: {reason}",
            hint="The daemon writes it once the node has a subnet: look at the log of weftd "
            "(or of the flannel pod) on this node.",
        )
    )


def variables_in(text: str) -> Variables:
    """Read a dotenv file, as people and tools write it (flannel.md §3.3). Every text is accepted.

    `KEY=value` or `KEY: value`, comments, quotes, `export`, `$VAR` and `${VAR}` of earlier lines.
    """
    values: dict[str, str] = {}
    complaints: list[str] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _ASSIGNMENT.fullmatch(line)
        value = None if found is None else _value(found[2], values)
        if found is None or value is None:
            complaints.append(f"line {number} is not KEY=value")
        else:
            values[found[1]] = value
    return Variables(values=values, complaints=tuple(complaints))


def _value(text: str, earlier: Mapping[str, str]) -> str | None:
    if text.startswith("'"):
        single = _SINGLE.fullmatch(text)
        return None if single is None else single[1]
    if text.startswith('"'):
        double = _DOUBLE.fullmatch(text)
        if double is None:
            return None
        # `\$` stays for `_expand`, which alone knows that it is no variable.
        unescaped = re.sub(r"\\([^$])", lambda found: _ESCAPES.get(found[1], found[1]), double[1], flags=re.DOTALL)
        return _expand(unescaped, earlier)
    return _expand(re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip(), earlier)


def _expand(text: str, earlier: Mapping[str, str]) -> str:
    """An unset variable is empty."""
    return _VARIABLE.sub(lambda found: earlier.get(found[1] or found[2], "") if found.lastindex else "$", text)
