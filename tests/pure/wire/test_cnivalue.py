"""Values by the keys of their fields: which key counts, what is refused, and how they are written."""

from ipaddress import ip_address, ip_interface
from typing import Annotated, Any

import pytest

from weft.model import keyed
from weft.model.attachment import Cidr
from weft.model.keyed import Arg, Key
from weft.model.net import Ip
from weft.model.value import Value, field
from weft.wire import cnijson
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError
from weft.wire.cnivalue import decode, decode_or_fail, encode


class Inner(Value):
    dst: Annotated[Cidr, Key("dst")]
    note: Annotated[str, Key("note")] = "none"


class Outer(Value):
    mac: Annotated[str, Key("mac", at="args.cni"), Arg("MAC", "The MAC."), Key("mac")] = "as it is"
    on: Annotated[bool | None, Key("on", at="args.cni"), Key("on")] = None
    mtu: Annotated[int, Key("mtu", least=10, most=20)] = 15
    gateways: Annotated[tuple[Ip, ...], Key("gateways")] = ()
    inner: Annotated[Inner | None, Key("inner", at="args")] = None
    lists: Annotated[tuple[tuple[Inner, ...], ...], Key("lists")] = ()
    words: Annotated[dict[str, str], Key("words")] = field(default_factory=dict)
    raw: Annotated[Any, Key("raw")] = None
    made: int = 7


def test_what_is_not_said_is_the_default():
    nothing = {"mac": "", "MTU": None, "args": None, "gateways": None, "unknown": 1, "made": 8}
    assert decode(Outer, {}) == decode(Outer, nothing) == Outer()
    assert encode(Outer()) == {}


def test_keys_match_in_any_case_and_the_last_one_that_says_something_wins():
    assert decode(Outer, cnijson.load(b'{"MTU": 11, "mtu": 12, "Mtu": null}')).mtu == 12
    assert decode(Outer, {"ARGS": {"Cni": {"ON": True}}}).on is True


def test_the_first_source_that_says_something_counts():
    config = {"mac": "own", "on": True, "args": {"cni": {"mac": "args", "on": False}}}
    assert (decode(Outer, config).mac, decode(Outer, config).on) == ("args", False)
    config["args"] = {"cni": {"mac": "", "on": None}}
    assert (decode(Outer, config).mac, decode(Outer, config).on) == ("own", True)
    assert decode(Outer, config, "MAC=environment").mac == "environment"
    assert decode(Outer, config, "MAC=").mac == "own"


def test_a_source_behind_the_one_that_counts_is_not_looked_at():
    assert decode(Outer, {"mac": 5, "args": {"cni": {"mac": "x"}}}, "nonsense").mac == "x"
    with pytest.raises(CniError, match="invalid pair"):
        decode(Outer, {"mac": "x"}, "nonsense")


def test_a_value_is_written_as_it_was_read():
    config = {
        "gateways": ["10.0.0.1", "fd00::1"],
        "args": {"cni": {"mac": "x"}, "inner": {"dst": "10.0.0.2/8"}},
        "lists": [[{"dst": "10.0.0.0/8", "note": "n"}], []],
        "words": {"a": "b"},
        "raw": [1],
    }
    value = decode(Outer, config)
    assert value == Outer(
        mac="x",
        gateways=(ip_address("10.0.0.1"), ip_address("fd00::1")),
        inner=Inner(dst=ip_interface("10.0.0.2/8")),
        lists=((Inner(dst=ip_interface("10.0.0.0/8"), note="n"),), ()),
        words={"a": "b"},
        raw=[1],
    )
    assert encode(value) == config


@pytest.mark.parametrize(
    "config, message",
    [
        ({"mac": 5}, "cannot use an integer as mac (expected a string)"),
        ({"mtu": True}, "cannot use a boolean as mtu (expected an integer)"),
        ({"mtu": 9}, "cannot use 9 as mtu (expected an integer from 10 to 20)"),
        ({"gateways": ["10.0.0.1", 5]}, "cannot use an integer as gateways[1] (expected a string)"),
        ({"gateways": [""]}, "invalid IP address: "),
        ({"gateways": {}}, "cannot use an object as gateways (expected a list)"),
        ({"args": {"cni": 5}}, "cannot use an integer as cni (expected an object)"),
        ({"args": {"inner": {}}}, "invalid CIDR address: "),
        ({"lists": [[], [None, 7]]}, "invalid CIDR address: "),
        ({"lists": [[], [{"dst": "::/0"}, 7]]}, "cannot use an integer as lists[1][1] (expected an object)"),
        ({"words": {"a": 5}}, "cannot use an integer as words 'a' (expected a string)"),
        # Of several faults, the first field's is told.
        ({"words": 5, "mtu": "x"}, "cannot use a string as mtu (expected an integer)"),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(JsonError) as caught:
        decode(Outer, config)
    assert str(caught.value) == message
    with pytest.raises(CniError) as failed:
        decode_or_fail(Outer, config, failed="failed to load")
    assert (failed.value.code, failed.value.msg) == (999, f"failed to load: {message}")


def test_zero_is_within_all_limits():
    assert decode(Outer, {"mtu": 0}).mtu == 0


def test_an_argument_alone_is_not_written():
    class Asked(Value):
        text: Annotated[str, Arg("IP", "An address.")] = ""

    assert encode(decode(Asked, {}, "IP=10.0.0.1")) == {}


def test_fields_of_a_class_and_of_those_above_it():
    class More(Inner):
        last: Annotated[int, Key("last")] = 0

    assert [(one.name, one.required, one.default) for one in keyed.fields(More)][1:] == [
        ("note", False, "none"),
        ("last", False, 0),
    ]
    assert keyed.fields(More)[0].required
