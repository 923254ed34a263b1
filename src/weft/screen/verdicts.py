"""What policies say of a flow, for people: whether it is allowed, by which rule, and why each other does not fit."""

import re
from collections.abc import Iterator
from typing import Final

import click

from weft.desired.policy.judge import judged
from weft.desired.policy.verdict import Asked, End, PolicyVerdict, Verdict, World, between
from weft.model.net import Ip, ip_in, with_port
from weft.model.policy import LAST_PORT, PROTOCOLS, Action, Pod
from weft.model.text import one_of
from weft.screen.documents import show_report

# `shop/web:80/tcp`, `10.244.1.2:http`, `[fd00::2]:53/udp`, and without a port.
_END: Final = re.compile(r"(?P<bare>[^\[\]:]+|\[(?P<six>[^\]]+)\])(?::(?P<port>\d{1,5})(?:/(?P<protocol>\w+))?)?")
_ENDS: Final[dict[Action, str]] = {"Accept": "allows it", "Deny": "denies it", "Pass": "ends the tier"}


def show_verdict(source: str, target: str, world: World, output: str) -> int:
    """Returns the exit status of `explain`."""
    verdict = judged(_asked(source, target, world), world)
    show_report(output, verdict, "".join(f"{line}\n" for line in _explained(verdict)))
    return 0 if verdict.allowed else 1


def _asked(source: str, target: str, world: World) -> Asked:
    found = None if ip_in(target) else _END.fullmatch(target)
    name, port, protocol = target, None, None
    if found is not None:
        name, port, protocol = found["six"] or found["bare"], found["port"], found["protocol"]
    if port is not None and not 0 < int(port) <= LAST_PORT:
        raise click.BadParameter(f"port {port} is not 1 to {LAST_PORT}", param_hint="B")
    if protocol is not None and protocol.lower() not in PROTOCOLS:
        raise click.BadParameter(f"{protocol} is not {one_of(PROTOCOLS, protocol)}", param_hint="B")
    first, second = _ends(_end(source, world), _end(name, world), world)
    asked = "icmp" if port is None else (protocol or PROTOCOLS[0]).lower()
    return Asked(source=first, target=second, protocol=asked, port=int(port or 0))


def _end(text: str, world: World) -> Pod | Ip:
    if (ip := ip_in(text)) is not None:
        return ip
    name = text if "/" in text else f"default/{text}"
    found = next((pod for pod in world.pods if str(pod) == name), None)
    if found is None:
        known = one_of(map(str, world.pods), name)
        port = "; a port is a number, as 80 or 53/udp" if ":" in text else ""
        raise click.BadParameter(f"{name!r} is no pod; expected {known}, or an address{port}", param_hint="A or B")
    return found


def _ends(source: Pod | Ip, target: Pod | Ip, world: World) -> tuple[End, End]:
    """A pod has the address of the other's family."""
    if isinstance(source, Pod) and isinstance(target, Pod):
        return between(source, target)
    versions = {each.version for each in (source, target) if not isinstance(each, Pod)}
    if len(versions) > 1:
        raise click.BadParameter("the two addresses are of different families", param_hint="A and B")

    def end(each: Pod | Ip) -> End:
        if not isinstance(each, Pod):
            return world.at(each)
        return End(pod=each, ip=next((ip for ip in each.ips if ip.version in versions), None))

    return end(source), end(target)


def _explained(verdict: Verdict) -> Iterator[str]:
    where = with_port(verdict.target, verdict.port)
    yield f"{verdict.source} → {where} {verdict.protocol}: {'allowed' if verdict.allowed else 'refused'}"
    for side in verdict.sides:
        yield ""
        yield f"{side.direction} of {side.pod}: {'allowed' if side.allowed else 'refused'}: {side.reason}"
        for each in side.policies:
            yield from _rules(each)
        if side.change:
            yield f"  to allow it: {side.change}"


def _rules(found: PolicyVerdict) -> Iterator[str]:
    yield f"  {found.policy}{f' ({found.tier})' if found.tier else ''}{'' if found.rules else ': no rules'}"
    for rule in found.rules:
        yield f"    {rule.path} {_ENDS[rule.action] if rule.fits else 'does not fit'}"
        yield from (f"      {why}" for why in rule.why)
