"""extension: a subnet for this node, and commands of the user's where peers come and go (flannel.md §6.9).

What the commands do, routes or a tunnel, is theirs. They are told of a peer by variables and by their input.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from weft.config.jsonfields import Fields
from weft.desired.claims import addresses
from weft.desired.inputs import Device, Inputs, check_type, options_of, unusable
from weft.model.kernel.objects import KernelState, Object, Ownership
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net
from weft.model.value import Value, put_in

LINKS = ()
claims = addresses
Variables = tuple[tuple[str, str], ...]

# flannel's words for a family that is off.
_NO_NETWORK: Final = {4: "0.0.0.0/0", 6: "::/0"}
_NO_ADDRESS: Final = "<nil>"
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", re.ASCII)


class Command(Value):
    """With `expands`, `$NAME` and `${NAME}` in each word stand for a variable, as in flannel (flannel.md §6.9)."""

    words: tuple[str, ...]
    expands: bool = True

    def __str__(self) -> str:
        """The program, and `…` for its arguments, which may hold credentials."""
        return f"{self.words[0]} …" if self.words[1:] else "".join(self.words)

    def arguments(self, variables: Mapping[str, str]) -> list[str]:
        """Replace variables, a missing one by nothing; no word is split again."""
        if not self.expands:
            return list(self.words)
        return [_VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), word) for word in self.words]


class ExtensionOptions(Value):
    """flannel.md §6.9."""

    before: Command | None = None
    after: Command | None = None
    add: Command | None = None
    remove: Command | None = None


class Printed(Value):
    """What the command that runs before the lease has printed, which the lease tells the other nodes."""

    text: str


class _Run(Object):
    """A command that has run, with `variables`."""

    variables: Variables

    code_if_changed = code_if_refused = "CMD-001"

    def is_within(self, ownership: Ownership) -> bool:  # noqa: ARG002 - no other program's are seen
        return True


class Begun(_Run):
    """The command that runs once the lease is known has run; before it none runs for a peer."""

    command: Command

    rank = 0
    vital = True
    advice = "No command runs for a peer until this one has succeeded"

    def __post_init__(self) -> None:
        put_in(self, "key", ("command",))

    def __str__(self) -> str:
        return f"PostStartupCommand ({self.command})"


class Added(_Run):
    """The command for a new peer has run; when this is wanted no more, the other one runs."""

    subnet: Net
    text: str
    add: Command | None
    remove: Command | None

    rank = 1
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("command", self.subnet.network_address.packed, self.subnet.prefixlen))

    def __str__(self) -> str:
        return f"commands for {self.subnet}"


def options(fields: Fields, _families: Collection[int]) -> ExtensionOptions:
    """A text is cut at blanks, as in flannel; a list of texts is taken as it is."""
    return ExtensionOptions(
        before=_command(fields, "PreStartupCommand"),
        after=_command(fields, "PostStartupCommand"),
        add=_command(fields, "SubnetAddCommand"),
        remove=_command(fields, "SubnetRemoveCommand"),
    )


def check(_inputs: Inputs) -> None: ...


def devices(_inputs: Inputs) -> Sequence[Device]:
    return ()


def mtu(inputs: Inputs) -> int:
    return inputs.facts.uplink.mtu


def advertise(inputs: Inputs) -> LeaseAttrs:
    told = inputs.prepared
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4,
        public_ipv6=inputs.facts.public_v6 if inputs.netconf.v6 else None,
        backend="extension",
        data=told.text if isinstance(told, Printed) else None,
    )


def shared(inputs: Inputs) -> KernelState:
    command = _options(inputs).after
    if command is None or (inputs.v4 is None and inputs.v6 is None):
        return frozenset()
    conf, facts = inputs.netconf, inputs.facts
    variables = {
        "NETWORK": _shown(conf.v4.network if conf.v4 else None, _NO_NETWORK[4]),
        "SUBNET": _shown(inputs.v4, _NO_NETWORK[4]),
        "IPV6SUBNET": _shown(inputs.v6, _NO_NETWORK[6]),
        "PUBLIC_IP": _shown(facts.public_v4, _NO_ADDRESS),
        "PUBLIC_IPV6": _shown(facts.public_v6, _NO_ADDRESS),
    }
    return frozenset({Begun(command=command, variables=tuple(variables.items()))})


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    attrs = lease.attrs
    check_type(lease, "extension")
    text = "" if attrs.data is None else attrs.data
    if not isinstance(text, str):
        raise unusable(lease, "BackendData is not a text", "what the peer's PreStartupCommand has printed")
    chosen = _options(inputs)
    here = {4: inputs.v4, 6: inputs.v6}
    subnets = [net for net in lease.subnets if here[net.version] is not None]
    if not subnets or (chosen.add is None and chosen.remove is None):
        return frozenset()
    names = {4: ("SUBNET", "PUBLIC_IP", attrs.public_ip), 6: ("IPV6SUBNET", "PUBLIC_IPV6", attrs.public_ipv6)}
    variables: list[tuple[str, str]] = []
    for net in subnets:
        subnet, address, public = names[net.version]
        variables += ((subnet, str(net)), *(() if public is None else ((address, str(public)),)))
    return frozenset(
        {Added(subnet=subnets[0], text=text, add=chosen.add, remove=chosen.remove, variables=tuple(variables))}
    )


def _command(fields: Fields, key: str) -> Command | None:
    value = fields.words(key)
    if isinstance(value, str):
        words = tuple(value.split())
        return Command(words=words) if words else None
    return Command(words=value, expands=False) if value else None


def _shown(value: Net | Ip | None, absent: str) -> str:
    return absent if value is None else str(value)


def _options(inputs: Inputs) -> ExtensionOptions:
    return options_of(inputs, ExtensionOptions)
