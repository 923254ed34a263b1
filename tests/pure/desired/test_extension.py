"""The back end extension: the user's commands, and what they are told."""

import json
import re
from ipaddress import IPv4Network

import pytest

from tests.support import builders
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, extension
from weft.desired.backends.extension import Added, Begun, Command, ExtensionOptions, Printed
from weft.desired.inputs import Inputs
from weft.desired.node import devices_of
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Ownership
from weft.model.lease import LeaseAttrs
from weft.model.value import replace

ADD, REMOVE = Command(words=("add", "$SUBNET")), Command(words=("remove", "$SUBNET"))
AFTER = Command(words=("ip", "link"))


def own(**how: object) -> Inputs:
    return builders.inputs(1, backend="extension", add=ADD, remove=REMOVE, **how)  # type: ignore[arg-type]


def parsed(**backend: object) -> object:
    text = json.dumps({"Network": "10.5.0.0/16", "Backend": {"Type": "extension", **backend}})
    return parse_netconf(text, backends=BACKENDS).options


def test_a_text_is_cut_at_blanks_and_a_list_is_taken_as_it_is():
    assert parsed(
        PreStartupCommand=" cat  /etc/hostname\n",
        PostStartupCommand=["sh", "-c", "ip link add $SUBNET"],
        SubnetAddCommand="",
    ) == ExtensionOptions(
        before=Command(words=("cat", "/etc/hostname")),
        after=Command(words=("sh", "-c", "ip link add $SUBNET"), expands=False),
    )


@pytest.mark.parametrize("value, seen", [("7", "7"), ("[]", "an array"), ('["a", 1]', "an array"), ("{}", "an object")])
def test_what_is_no_command_is_refused(value: str, seen: str):
    text = f'{{"Network": "10.5.0.0/16", "Backend": {{"Type": "extension", "SubnetAddCommand": {value}}}}}'
    with pytest.raises(ConfigError, match=re.escape(f"Backend.SubnetAddCommand: {seen}; expected a text")):
        parse_netconf(text, backends=BACKENDS)


@pytest.mark.parametrize(
    "word, argument",
    [
        ("$SUBNET", "10.5.0.0/24"),
        ("a${SUBNET}b$SUBNET", "a10.5.0.0/24b10.5.0.0/24"),
        ("$SUBNETS", ""),
        ("${NOT}/", "/"),
        ("$1 $ ${} $(id) `id`", "$1 $ ${} $(id) `id`"),
        ("$TWO", "a b"),
    ],
)
def test_variables_in_words(word: str, argument: str):
    known = {"SUBNET": "10.5.0.0/24", "TWO": "a b"}
    assert Command(words=("x", word)).arguments(known) == ["x", argument]
    assert Command(words=("x", word), expands=False).arguments(known) == ["x", word]


@pytest.mark.spec("flannel.md §6.9/PostStartupCommand")
def test_what_runs_after_the_lease():
    [thing] = extension.shared(own(after=AFTER))
    assert isinstance(thing, Begun)
    assert dict(thing.variables) == {
        "NETWORK": "10.5.0.0/16",
        "SUBNET": "10.5.1.0/24",
        "IPV6SUBNET": "::/0",
        "PUBLIC_IP": "192.168.0.1",
        "PUBLIC_IPV6": "<nil>",
    }
    assert str(thing) == "PostStartupCommand (ip …)"
    [six] = extension.shared(own(after=AFTER, family="6"))
    assert isinstance(six, Begun)
    assert dict(six.variables) == {
        "NETWORK": "0.0.0.0/0",
        "SUBNET": "0.0.0.0/0",
        "IPV6SUBNET": "fc00:0:0:1::/64",
        "PUBLIC_IP": "<nil>",
        "PUBLIC_IPV6": "fd00::1",
    }


def test_without_a_lease_or_a_command_nothing_runs():
    assert extension.shared(replace(own(after=AFTER), v4=None)) == frozenset()
    assert extension.shared(own()) == frozenset()
    assert extension.peer(builders.inputs(1, backend="extension"), builders.lease(2, extension)) == frozenset()


@pytest.mark.spec("flannel.md §6.9/SubnetAddCommand", "flannel.md §6.9/SubnetRemoveCommand")
def test_what_is_told_of_a_peer():
    lease = builders.lease(2, extension)
    lease = replace(lease, attrs=replace(lease.attrs, data="its words"))
    [thing] = extension.peer(own(), lease)
    assert thing == Added(
        subnet=IPv4Network("10.5.2.0/24"),
        text="its words",
        add=ADD,
        remove=REMOVE,
        variables=(("SUBNET", "10.5.2.0/24"), ("PUBLIC_IP", "192.168.0.2")),
    )
    assert str(thing) == "commands for 10.5.2.0/24"
    assert thing.is_within(Ownership(devices=frozenset(), networks=()))
    assert thing.code_if_changed == "CMD-001"


def test_both_families_of_a_peer_are_told():
    [thing] = extension.peer(own(family="46"), builders.lease(2, extension, family="46"))
    assert isinstance(thing, Added)
    assert dict(thing.variables) == {
        "SUBNET": "10.5.2.0/24",
        "PUBLIC_IP": "192.168.0.2",
        "IPV6SUBNET": "fc00:0:0:2::/64",
        "PUBLIC_IPV6": "fd00::2",
    }
    lease = builders.lease(2, extension, family="46")
    [other] = extension.peer(own(), replace(lease, attrs=replace(lease.attrs, public_ip=None)))
    assert isinstance(other, Added)
    assert other.variables == (("SUBNET", "10.5.2.0/24"),)
    assert extension.peer(own(), replace(lease, v4=None)) == frozenset()


def test_a_peer_of_another_kind_or_with_other_data_is_refused():
    lease = builders.lease(2, extension)
    with pytest.raises(PeerError, match="backend 'vxlan'; expected extension"):
        extension.peer(own(), replace(lease, attrs=replace(lease.attrs, backend="vxlan")))
    with pytest.raises(PeerError, match="BackendData is not a text"):
        extension.peer(own(), replace(lease, attrs=replace(lease.attrs, data={"a": 1})))


@pytest.mark.spec("flannel.md §6.9/published", "flannel.md §6.1/mtu-extension")
def test_the_lease_carries_what_the_first_command_printed():
    assert extension.advertise(own()) == LeaseAttrs(public_ip=builders.public_v4(1), backend="extension")
    assert extension.advertise(replace(own(family="46"), prepared=Printed(text="x"))) == LeaseAttrs(
        public_ip=builders.public_v4(1), public_ipv6=builders.public_v6(1), backend="extension", data="x"
    )
    extension.check(own())
    assert extension.mtu(own()) == 1500
    assert devices_of(own()) == {}


def test_options_of_another_back_end_are_a_fault():
    with pytest.raises(TypeError, match="extension got VxlanOptions"):
        extension.shared(replace(own(), netconf=builders.netconf()))


@pytest.mark.spec("flannel.md §6.10/clouds")
@pytest.mark.parametrize("cloud", ["tencent-vpc", "ali-vpc", "aws-vpc", "gce"])
def test_a_clouds_back_end_is_refused_with_what_can_serve(cloud: str):
    with pytest.raises(
        ConfigError, match=f"{cloud}: weft keeps no route tables of clouds; .*Use extension .* or alloc"
    ):
        parse_netconf(f'{{"Network": "10.5.0.0/16", "Backend": {{"Type": "{cloud}"}}}}', backends=BACKENDS)
