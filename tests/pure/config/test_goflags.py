"""Go's flag syntax: what the command line means, and that everything wrong with it is said at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import mostly
from tests.pure.reach import reached, reaches
from weft.config.flags import parse_flags
from weft.config.goflags import parse_bool, parse_int, tokens
from weft.config.options import FLAGS, Options
from weft.model.errors import ConfigError, Problem

ANY_INT = {"low": -(2**63), "high": 2**63 - 1}


def problems(*argv: str, **environ: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        parse_flags(argv, environ)
    assert all(problem.code == "FLAG-001" for problem in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.spec("flannel.md §1.1/dashes")
@pytest.mark.parametrize("argv", [["-iface=eth1"], ["--iface=eth1"], ["-iface", "eth1"], ["--iface", "eth1"]])
def test_one_dash_or_two_and_equals_or_a_separate_value_are_the_same(argv):
    assert parse_flags(argv, {}).iface == ("eth1",)


@pytest.mark.spec("flannel.md §1.1/dashes")
def test_a_separate_value_may_look_like_a_flag():
    assert parse_flags(["--etcd-prefix", "--ip-masq"], {}).etcd_prefix == "--ip-masq"


@pytest.mark.spec("flannel.md §1.1/dashes")
def test_the_value_is_what_follows_the_first_equals_sign():
    assert parse_flags(["--etcd-prefix=/a=b"], {}).etcd_prefix == "/a=b"


@pytest.mark.spec("flannel.md §1.1/bool-equals-form")
def test_a_bare_boolean_is_true_and_a_value_needs_the_equals_sign():
    assert parse_flags(["--ip-masq"], {}).ip_masq is True
    assert parse_flags(["--iptables-forward-rules=false"], {}).iptables_forward_rules is False
    [problem] = problems("--ip-masq", "false")
    assert "'false' is not a flag" in problem.seen
    assert "--ip-masq=false" in problem.hint


@pytest.mark.spec("flannel.md §1.1/literals")
def test_boolean_literals_are_gos():
    assert all(parse_bool(text) is True for text in ("1", "t", "T", "TRUE", "true", "True"))
    assert all(parse_bool(text) is False for text in ("0", "f", "F", "FALSE", "false", "False"))
    for text in ("", "yes", "tRUE", "2", " true"):
        with pytest.raises(ValueError, match="true or false"):
            parse_bool(text)


@pytest.mark.spec("flannel.md §1.1/literals")
@pytest.mark.parametrize(
    "text, value",
    [
        ("0", 0),
        ("42", 42),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("0X1f", 31),
        ("0o17", 15),
        ("0O17", 15),
        ("017", 15),
        ("0b101", 5),
        ("0B101", 5),
        ("1_000", 1000),
        ("0x_ff", 255),
        ("0_7", 7),
        ("-0x10", -16),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_integer_literals_are_gos(text, value):
    assert parse_int(text, **ANY_INT) == value


@pytest.mark.spec("flannel.md §1.1/literals")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "08",
        "0x",
        "0b2",
        "_1",
        "1_",
        "1__0",
        "٣",
        "--1",
        "9223372036854775808",
        "1" * 5000,
    ],
)
def test_what_go_does_not_read_is_no_integer(text):
    with pytest.raises(ValueError, match="whole number"):
        parse_int(text, **ANY_INT)


@pytest.mark.spec("flannel.md §1.1/positionals")
def test_arguments_that_are_no_flags_are_errors():
    assert [problem.seen for problem in problems("up", "--ip-masq", "--", "--iface=eth0")] == [
        "'up' is not a flag",
        "'--iface=eth0' is not a flag",
    ]
    assert problems("-")[0].seen == "'-' is not a flag"
    assert parse_flags(["--ip-masq", "--"], {}).ip_masq


@pytest.mark.spec("flannel.md §1.1/unknown-flag")
@pytest.mark.parametrize(
    "argument, hint",
    [
        ("--ifac=eth0", "Did you mean --iface?"),
        ("--etcd_endpoints=x", "Did you mean --etcd-endpoints?"),
        ("-IP-MASQ", "Did you mean --ip-masq?"),
        ("--qqqq", "See weftd --help."),
    ],
)
def test_an_unknown_flag_is_an_error_with_a_guess(argument, hint):
    [problem] = problems(argument)
    assert (problem.code, problem.seen, problem.hint) == ("FLAG-001", "no such flag", hint)


@pytest.mark.spec("flannel.md §1.1/unknown-flag")
def test_all_mistakes_are_reported_at_once_in_the_order_of_the_line():
    found = problems(
        "--ifac", "eth0", "--v=x", "---y", "--public-ip=::1", "--vmodule=k", "--etcd-keyfile=k", "--iface",
        FLANNELD_IP_MASQ="maybe",
    )  # fmt: skip
    assert [problem.where for problem in found] == [
        "--ifac",
        "'---y'",
        "--iface",
        "--v",
        "--public-ip",
        "FLANNELD_IP_MASQ",
        "--vmodule",
        "--etcd-keyfile",
    ]
    assert {problem.code for problem in found} == {"FLAG-001"}


@pytest.mark.spec("flannel.md §1.1/unknown-flag")
@pytest.mark.parametrize("argument", ["-h", "-help", "--help", "--help=yes"])
def test_help_wins_over_mistakes(argument):
    assert parse_flags(["--bogus", argument], {"FLANNELD_V": "x"}).help


@pytest.mark.spec("flannel.md §1.1/repeats")
def test_the_last_of_several_wins_and_lists_grow():
    options = parse_flags(["--v=1", "--v=2", "--iface=b", "--iface=a", "--iface-regex=x", "--iface-regex=y"], {})
    assert options.v == 2
    assert options.iface == ("b", "a")
    assert [pattern.pattern for pattern in options.iface_regex] == ["x", "y"]


@pytest.mark.spec("flannel.md §1.1/repeats")
def test_a_bad_value_is_an_error_even_if_a_good_one_follows():
    assert problems("--v=x", "--v=2")[0].seen == "'x'"


def test_a_secret_is_not_shown_by_a_misspelt_flag_or_a_stray_argument():
    for argv in (["--etcd-pasword", "hush"], ["--etcd-pasword=hush"], ["--etcd-password=", "hush"]):
        assert "hush" not in "\n".join(map(str, problems(*argv)))


ODD = st.one_of(
    st.text(max_size=12),
    st.sampled_from([f"--{flag.name}" for flag in FLAGS] + ["--", "-", "---", "--=", "-h=", "true", "--ip-masq=false"]),
    st.builds("--{}={}".format, st.sampled_from([flag.name for flag in FLAGS]), st.text(max_size=12)),
)
# A default is a value of its flag; those without one have text, or nothing, as theirs.
GOOD = st.sampled_from([f"--{flag.name}={flag.default}" for flag in FLAGS])
WORDS = st.sampled_from([(flag.variable, flag.default) for flag in FLAGS])


@reaches(options=0.1, refused=0.1)
@given(
    argv=st.lists(mostly(GOOD, ODD), max_size=6),
    environ=mostly(
        st.lists(WORDS, max_size=3).map(dict),
        st.dictionaries(st.sampled_from([flag.variable for flag in FLAGS] + ["FLANNELD_"]), st.text(max_size=8)),
    ),
)
def test_any_input_gives_options_or_a_config_error(argv, environ):
    found: Options | list[str]
    try:
        found = parse_flags(argv, environ)
    except ConfigError as error:
        found = [problem.code for problem in error.problems]
    reached("options" if isinstance(found, Options) else "refused")
    assert isinstance(found, Options) or set(found) == {"FLAG-001"}


def test_what_was_given_does_not_show_in_a_traceback():
    [given] = tokens(["--etcd-password=hunter2"]).given
    assert repr(given) == "Given(etcd-password, --etcd-password)"
