"""Versions, names, arguments and errors of the CNI protocol."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.wire import cni
from weft.wire.cni import CniError


@pytest.mark.spec("cni.md V1")
@pytest.mark.parametrize("text, parts", [("1.2.3", (1, 2, 3)), ("", (0, 1, 0)), ("1", (1, 0, 0)), ("1.2", (1, 2, 0))])
def test_a_version_has_up_to_three_numbers(text, parts):
    assert cni.parse_version(text) == parts


@pytest.mark.spec("cni.md V2")
@pytest.mark.parametrize(
    "text", ["asdfasdf", "asdf.", ".asdfas", "asdf.adsf.", "0.", "..", "1.2.3.4.5", "1.-2", "1.²", " 1"]
)
def test_what_is_no_version_is_refused(text):
    with pytest.raises(ValueError, match="version"):
        cni.parse_version(text)


@pytest.mark.spec("cni.md V3")
@pytest.mark.parametrize(
    "newer, older", [("1.2.34", "1.2.14"), ("2.5.4", "2.4.4"), ("1.2.3", "0.2.3"), ("0.4.0", "0.3.1")]
)
def test_versions_are_compared_by_number(newer, older):
    assert cni.at_least(newer, older)
    assert not cni.at_least(older, newer)
    assert cni.at_least(older, older)


@pytest.mark.spec("cni.md V4")
@pytest.mark.parametrize(
    "one, other, later", [("1.1.0", "1.1.1", False), ("1.1.1", "1.1.0", True), ("1.1.1", "1.1.1", False)]
)
def test_one_version_is_later_than_another(one, other, later):
    assert (not cni.at_least(other, one)) is later


@pytest.mark.spec("cni.md V5")
def test_versions_from_one_on():
    assert cni.versions_from("0.3.1") == ("0.3.1", "0.4.0", "1.0.0", "1.1.0")


@pytest.mark.spec("cni.md G2", cases="*IgnoreUnknown*")
@pytest.mark.parametrize(
    "args",
    [
        pytest.param("", marks=pytest.mark.spec("cni.md G1")),
        "IgnoreUnknown=True;Unk=nown",
        "Unk=nown;IgnoreUnknown=1",
        "IgnoreUnknown=1",
    ],
)
def test_arguments_that_are_accepted(args):
    assert cni.parse_args(args, {"IP"}) == {}


def test_what_another_plugin_understands_is_left_to_it():
    assert cni.parse_args("MAC=c2:11:22:33:44:55;IP=10.0.0.2", {"MAC"}) == {"MAC": "c2:11:22:33:44:55"}


@pytest.mark.spec("cni.md G3", cases=("Unk=nown-*", "A=1*"))
@pytest.mark.spec("cni.md G4", cases="IgnoreUnknown=0*")
@pytest.mark.spec("cni.md G5", cases="FOO-*")
@pytest.mark.parametrize(
    "args, message",
    [
        ("Unk=nown", 'ARGS: unknown args ["Unk=nown"]'),
        ("A=1;IgnoreUnknown=false;B=2", 'ARGS: unknown args ["A=1" "B=2"]'),
        ("IgnoreUnknown=0, Unk=nown", 'ARGS: invalid pair "IgnoreUnknown=0, Unk=nown"'),
        ("FOO", 'ARGS: invalid pair "FOO"'),
    ],
)
def test_arguments_that_are_refused(args, message):
    with pytest.raises(CniError) as caught:
        cni.parse_args(args, ())
    assert (caught.value.code, caught.value.msg) == (999, message)


@pytest.mark.spec("cni.md G6")
@pytest.mark.parametrize("text, value", [("True", True), ("true", True), ("1", True), ("False", False), ("0", False)])
def test_booleans_of_arguments(text, value):
    assert cni.truth(text) is value


@pytest.mark.spec("cni.md G6")
def test_a_boolean_that_is_none():
    with pytest.raises(CniError, match='ARGS: error parsing value of pair "IgnoreUnknown=invalid"'):
        cni.parse_args("IgnoreUnknown=invalid", ())


@pytest.mark.spec("cni.md G10")
def test_an_error_as_people_read_it():
    assert str(CniError(1234, "some message", "some details")) == "some message; some details"
    assert str(CniError(1234, "some message")) == "some message"


@pytest.mark.spec("cni.md F41", "flannel.md §10.1/errors")
def test_an_error_as_programs_read_it():
    assert json.loads(CniError(7, "m", "d").render()) == {"code": 7, "msg": "m", "details": "d"}
    assert json.loads(CniError(7, "m").render()) == {"code": 7, "msg": "m"}
    assert CniError(7, "m").render() == b'{\n    "code": 7,\n    "msg": "m"\n}'


def test_an_error_of_any_kind_gets_words_before_its_message():
    class Special(CniError):
        def __init__(self) -> None:
            super().__init__(999, "it", "more")

    within = Special().within("because: ")
    assert isinstance(within, Special)
    assert (within.code, within.msg, within.details, str(within)) == (999, "because: it", "more", "because: it; more")


def test_an_answer_is_always_utf8():
    assert json.loads(CniError(7, "\udcff\ud800").render())["msg"] == "??"


def test_only_an_error_without_a_code_gets_words_before_it():
    assert cni.failure("b", "c").within("a: ").msg == "a: b"
    typed = CniError(4, "b")
    assert typed.within("a: ") is typed


def test_a_container_id_that_no_file_can_be_named_after():
    cni.check_container_id("x" * 238)
    with pytest.raises(CniError, match=r"containerID is too long; 239 characters; .* allows 238") as caught:
        cni.check_container_id("x" * 239)
    assert caught.value.code == 4


def test_an_interface_without_a_name():
    with pytest.raises(CniError, match=r"^interface name is empty$"):
        cni.check_ifname("")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=20)


@given(VALUES)
def test_json_is_indented_as_the_standard_library_does_it(value):
    assert cni.encode(value) == json.dumps(value, indent=4, ensure_ascii=False).encode("utf-8", "replace")


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_the_attachments_that_gc_leaves_alone(key):
    listed = [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "net1", "more": 1}]
    assert cni.valid_attachments({key: listed}) == {("c1", "eth0"), ("c2", "net1")}
    assert cni.valid_attachments({key: []}) == cni.valid_attachments({key: None}) == frozenset()


def test_the_newer_key_of_the_two_counts():
    config = {"cni.dev/attachments": [{"containerID": "old", "ifname": "e"}], "cni.dev/valid-attachments": []}
    assert cni.valid_attachments(config) == frozenset()


def test_gc_without_a_list_would_free_what_is_alive():
    with pytest.raises(CniError, match="valid-attachments") as caught:
        cni.valid_attachments({"name": "net"})
    assert caught.value.code == cni.BAD_CONFIG
    for wrong in ("c1", ["c1"], [{"containerID": 1}]):
        with pytest.raises(CniError) as caught:
            cni.valid_attachments({"cni.dev/valid-attachments": wrong})
        assert caught.value.code == cni.UNDECODABLE
