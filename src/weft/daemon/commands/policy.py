"""`weft policy`: what NetworkPolicies allow and what is wrong with them, from files, without a daemon or a cluster."""

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from weft.desired.policy.advice import Advice, advice
from weft.desired.policy.judge import judged
from weft.desired.policy.preview import Pair, Preview, applied, preview, world_of
from weft.desired.policy.verdict import Asked, End, PolicyVerdict, Verdict, World, between
from weft.model.errors import ConfigError, Problem
from weft.model.net import Ip, ip_in, with_port
from weft.model.policy import LAST_PORT, PROTOCOLS, Action, Pod, Thing
from weft.model.text import counted, one_of
from weft.model.value import Value
from weft.screen.documents import DOCUMENTS, complain, output_option, show_report
from weft.screen.groups import Group
from weft.wire.policyobjects import Objects, read_objects

_SUFFIXES: Final = (".yaml", ".yml", ".json")
# `shop/web:80/tcp`, `10.244.1.2:http`, `[fd00::2]:53/udp`, and without a port.
_END: Final = re.compile(r"(?P<bare>[^\[\]:]+|\[(?P<six>[^\]]+)\])(?::(?P<port>\d{1,5})(?:/(?P<protocol>\w+))?)?")
_ENDS: Final[dict[Action, str]] = {"Accept": "allows it", "Deny": "denies it", "Pass": "ends the tier"}
_PATH: Final = click.Path(exists=True, path_type=Path)
_FROM: Final = click.option(
    "--from",
    "files",
    type=_PATH,
    multiple=True,
    required=True,
    help="File or directory of objects (YAML or JSON): namespaces, pods and policies. May be given again.",
)


class Checked(Value):
    """`problems` cannot be enforced as written, `advice` is what is probably not meant."""

    policies: int
    problems: tuple[Problem, ...]
    advice: tuple[Advice, ...]


@click.group(cls=Group)
def policy() -> None:
    """NetworkPolicies and ClusterNetworkPolicies: what they allow, why they refuse, what is wrong with them.

    By files, without a daemon or a cluster.
    """


@policy.command()
@click.argument("source", metavar="A")
@click.argument("target", metavar="B[:PORT[/PROTOCOL]]")
@_FROM
@click.option("--with", "more", type=_PATH, multiple=True, help="As if these objects were applied, too.")
@output_option
def explain(source: str, target: str, files: Sequence[Path], more: Sequence[Path], output: str) -> int:
    """Say whether policies let A send to B, by which rule, and why each other rule does not fit.

    \b
      weft policy explain shop/web shop/db:5432 --from cluster.yaml
      weft policy explain 192.0.2.7 shop/web:53/udp --from cluster.yaml --with new.yaml

    A and B are pods (NAMESPACE/NAME, or NAME in namespace default) or addresses; without a port, an echo request is
    asked about. Both ends are asked: what leaves A, and what enters B.

    Exits 0 if it is allowed, 1 if it is refused.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    world = _world(files, output, more)
    verdict = judged(_asked(source, target, world), world)
    show_report(output, verdict, "".join(f"{line}\n" for line in _explained(verdict)))
    return 0 if verdict.allowed else 1


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE…")
@output_option
def check(files: Sequence[Path], output: str) -> int:
    """Say what of policies cannot be enforced as written, and what is probably not meant.

    \b
      weft policy check new.yaml
      weft policy check policies/ pods.yaml

    A policy that selects no pod, two peers where one with both selectors may be meant, a block with addresses of pods,
    a port's name that no pod has, what leaves without DNS. What needs pods is looked at if the files have any.

    Exits 0 if nothing is to be said, else 1.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    found = read_objects(_texts(files))
    count = len(found.policies) + len(found.cluster)
    checked = Checked(policies=count, problems=found.problems, advice=advice(world_of(_things(found))))
    show_report(output, checked, "".join(f"{line}\n" for line in _checked(checked)))
    return 1 if checked.problems or checked.advice else 0


@policy.command(name="preview")
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE…")
@click.option("--from", "now", type=_PATH, multiple=True, required=True, help="File or directory of what is there now.")
@output_option
def preview_(files: Sequence[Path], now: Sequence[Path], output: str) -> None:
    """Say what FILE would change: pods that become restricted, and pairs of pods that are cut or joined.

    \b
      weft policy preview new.yaml --from cluster.yaml
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    found = preview(_world(now, output), _world(now, output, files))
    show_report(output, found, "".join(f"{line}\n" for line in _previewed(found)))


def _texts(paths: Sequence[Path]) -> dict[str, str]:
    """What files hold, those in directories by their suffix. Raises `ConfigError`."""
    files = [
        file
        for path in paths
        for file in (sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES) if path.is_dir() else [path])
    ]
    try:
        return {str(file): file.read_text() for file in files}
    except UnicodeDecodeError as error:
        raise ConfigError(Problem("POL-005", "a file", str(error), expected="text in UTF-8")) from error


def _things(found: Objects, known: Collection[str] = ()) -> tuple[Thing, ...]:
    """Those of files; of a namespace that they only name, `known` is what is said elsewhere."""
    namespaces = (each for each in found.namespaces if each.name not in found.assumed.intersection(known))
    return (*namespaces, *found.pods, *found.policies, *found.cluster)


def _world(paths: Sequence[Path], output: str, more: Sequence[Path] = ()) -> World:
    """What is in files, and `more` of the same names instead; says what of it cannot be enforced as written."""
    found, over = read_objects(_texts(paths)), read_objects(_texts(more))
    for problem in (*found.problems, *over.problems):
        complain(problem, programs=output in DOCUMENTS)
    world = world_of(_things(found))
    return applied(world, _things(over, world.namespaces))


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
        raise click.BadParameter(f"{name!r} is no pod; expected {known}, or an address", param_hint="A or B")
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


def _checked(checked: Checked) -> Iterator[str]:
    for problem in checked.problems:
        yield str(problem)
    for each in checked.advice:
        yield f"{each.policy} {each.path}: {each.seen}. {each.hint}."
    if not checked.problems and not checked.advice:
        yield f"Nothing to say of {counted(checked.policies, 'policy object')}."


def _previewed(found: Preview) -> Iterator[str]:
    for each in found.restricted:
        yield f"{each.pod}: its {each.direction} becomes restricted"
    for each in found.freed:
        yield f"{each.pod}: its {each.direction} is restricted no more"
    for pair in found.pairs:
        yield from _pair(pair)
    if not (found.restricted or found.freed or found.pairs):
        yield "Nothing changes between these pods."


def _pair(pair: Pair) -> Iterator[str]:
    for words, ports in (("no more", pair.closed), ("now", pair.opened)):
        if ports:
            yield f"{pair.source} → {pair.target}: {words} {', '.join(ports)}"
