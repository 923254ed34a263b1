"""What each flag and each variable means, what contradicts what, and what this build refuses."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from weft.config.flaghelp import help_text
from weft.config.flags import changed, parse_flags
from weft.config.options import FLAGS, Options
from weft.model.errors import ConfigError, Problem
from weft.model.value import Secret

DEFAULTS = parse_flags([], {})


def problems(*argv: str, **environ: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        parse_flags(argv, environ)
    assert all(problem.code == "FLAG-001" for problem in caught.value.problems)
    return list(caught.value.problems)


NODE = {"NODE_NAME": "n1"}


def row(name):
    return pytest.mark.spec(f"flannel.md §1.2/{name}")


# Each row of flannel.md §1.2: flag, its field's default, an argument, the value it gives.
ROWS = [
    (
        "etcd-endpoints",
        ("http://127.0.0.1:4001", "http://127.0.0.1:2379"),
        "--etcd-endpoints=http://a:1, https://[::1]:2379/",
        ("http://a:1", "https://[::1]:2379"),
    ),
    ("etcd-prefix", "/coreos.com/network", "--etcd-prefix=/w", "/w"),
    ("etcd-cafile", "", "--etcd-cafile=ca.pem", "ca.pem"),
    ("iface", (), "--iface=10.0.0.1", ("10.0.0.1",)),
    ("iface-can-reach", None, "--iface-can-reach=fd00::1", IPv6Address("fd00::1")),
    ("subnet-file", "/run/flannel/subnet.env", "--subnet-file=s.env", "s.env"),
    ("public-ip", None, "--public-ip=192.0.2.7", IPv4Address("192.0.2.7")),
    ("public-ipv6", None, "--public-ipv6=2001:db8::7", IPv6Address("2001:db8::7")),
    ("subnet-lease-renew-margin", 60, "--subnet-lease-renew-margin=1439", 1439),
    ("ip-masq", False, "--ip-masq", True),
    ("ip-masq-fully-random-disable", False, "--ip-masq-fully-random-disable", True),
    ("healthz-ip", IPv4Address(0), "--healthz-ip=::1", IPv6Address("::1")),
    ("healthz-port", 0, "--healthz-port=0x1f90", 8080),
    ("iptables-resync", 5, "--iptables-resync=1", 1),
    ("iptables-forward-rules", True, "--iptables-forward-rules=f", False),
    ("ip-blackhole-route", False, "--ip-blackhole-route", True),
    ("v", 0, "--v=3", 3),
    ("kube-subnet-mgr", False, "--kube-subnet-mgr", True),
    ("kube-api-url", "", "--kube-api-url=https://k:6443", "https://k:6443"),
    ("kube-annotation-prefix", "flannel.alpha.coreos.com/", "--kube-annotation-prefix=a.b", "a.b/"),
    ("kubeconfig-file", "", "--kubeconfig-file=k", "k"),
    ("net-config-path", "/etc/kube-flannel/net-conf.json", "--net-config-path=n", "n"),
    ("set-node-network-unavailable", True, "--set-node-network-unavailable=false", False),
    ("version", False, "--version", True),
]


@pytest.mark.parametrize("name, default, argument, value", [pytest.param(*each, marks=row(each[0])) for each in ROWS])
def test_a_flag_has_its_default_and_takes_its_value(name, default, argument, value):
    field = name.replace("-", "_")
    assert getattr(DEFAULTS, field) == default
    assert getattr(parse_flags([argument], NODE), field) == value


@pytest.mark.spec("flannel.md §1.2/etcd-certfile", "flannel.md §1.2/etcd-keyfile")
def test_a_certificate_comes_with_its_key():
    assert (DEFAULTS.etcd_certfile, DEFAULTS.etcd_keyfile) == ("", "")
    options = parse_flags(["--etcd-certfile=c", "--etcd-keyfile=k"], {})
    assert (options.etcd_certfile, options.etcd_keyfile) == ("c", "k")
    assert problems("--etcd-certfile=c")[0].hint == "Add --etcd-keyfile=FILE."
    assert problems("--etcd-keyfile=k")[0].hint == "Add --etcd-certfile=FILE."


@pytest.mark.spec("flannel.md §1.2/etcd-username-password", "flannel.md §1.2/logging-stderr")
def test_a_password_is_taken_with_a_warning_and_never_shown():
    options = parse_flags(["--etcd-username=u", "--etcd-password=hush"], {})
    assert options.etcd_password == Secret("hush")
    assert options.etcd_password.reveal() == "hush"
    assert "hush" not in f"{options} {options!r} {options.etcd_password} {options.etcd_password!r}"
    assert any("--etcd-password-file" in warning for warning in options.warnings)


@pytest.mark.spec("flannel.md §1.2/etcd-username-password")
def test_a_password_from_a_variable_or_a_file_needs_no_warning():
    options = parse_flags(["--etcd-username=u"], {"FLANNELD_ETCD_PASSWORD": "hush"})
    assert (options.etcd_password, options.warnings) == (Secret("hush"), ())
    options = parse_flags(["--etcd-username=u", "--etcd-password-file=/etc/p"], {})
    assert (options.etcd_password_file, options.warnings) == ("/etc/p", ())


@pytest.mark.spec("flannel.md §1.2/etcd-username-password")
@pytest.mark.parametrize(
    "argv, seen",
    [
        (["--etcd-username=u"], "given without a password"),
        (["--etcd-password=hush"], "given without a user"),
        (["--etcd-password-file=f"], "given without a user"),
        (["--etcd-username=u", "--etcd-password=hush", "--etcd-password-file=f"], "given together with"),
    ],
)
def test_user_and_password_belong_together(argv, seen):
    [problem] = problems(*argv)
    assert problem.seen.startswith(seen)


@row("etcd-endpoints")
@pytest.mark.parametrize(
    "text", ["", "a", "ftp://a:1", "http://a", "http://a:0", "http://a:70000", "http://a:1/x", ","]
)
def test_an_endpoint_is_a_url_with_a_port(text):
    [problem] = problems(f"--etcd-endpoints={text}")
    assert "http://HOST:PORT" in problem.expected


@row("etcd-endpoints")
@pytest.mark.parametrize("text", ["http://a:1,http://b:2,", ",http://a:1,http://b:2", "http://a:1,, ,http://b:2"])
def test_empty_entries_of_a_list_are_skipped_as_upstream_does(text):
    assert parse_flags([f"--etcd-endpoints={text}"], {}).etcd_endpoints == ("http://a:1", "http://b:2")
    assert parse_flags([], {"FLANNELD_ETCD_ENDPOINTS": text}).etcd_endpoints == ("http://a:1", "http://b:2")


@row("etcd-endpoints")
def test_an_endpoint_without_scheme_uses_tls_if_there_is_a_certificate():
    assert parse_flags(["--etcd-endpoints=a:1"], {}).etcd_endpoints == ("http://a:1",)
    tls = parse_flags(["--etcd-endpoints=a:1", "--etcd-certfile=c", "--etcd-keyfile=k"], {})
    assert (tls.etcd_endpoints, tls.warnings) == (("https://a:1",), ())


@row("etcd-endpoints")
def test_a_password_in_an_endpoint_is_refused_and_not_shown():
    [problem] = problems("--etcd-endpoints=http://u:hush@a:1")
    assert "hush" not in str(problem)
    assert "without user" in problem.expected


@row("etcd-cafile")
def test_tls_files_beside_a_plain_endpoint_are_warned_about():
    [warning] = parse_flags(["--etcd-cafile=ca", "--etcd-endpoints=http://a:1,https://b:1"], {}).warnings
    assert "http://a:1" in warning
    assert "https://b:1" not in warning


@pytest.mark.spec("flannel.md §7.2/regex-dialect")
@pytest.mark.spec("flannel.md §1.2/iface-regex", cases="a(-RE2")
@pytest.mark.parametrize(
    "pattern, word", [(r"a(?=b)", "invalid perl operator: (?="), (r"(a)\1", "invalid escape"), ("a(", "RE2")]
)
def test_a_pattern_that_is_not_re2_is_refused(pattern, word):
    [problem] = problems(f"--iface-regex={pattern}")
    assert problem.where == "--iface-regex"
    assert "RE2" in problem.expected
    assert word in problem.expected


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param(argument, marks=row(argument.partition("=")[0].removeprefix("--")))
        for argument in (
            "--public-ip=2001:db8::1",
            "--public-ip=1.2.3",
            "--public-ip=01.2.3.4",
            "--public-ip=127.0.0.1",
            "--public-ip=0.0.0.0",
            "--public-ip=224.0.0.1",
            "--public-ipv6=192.0.2.1",
            "--public-ipv6=::",
            "--public-ipv6=::ffff:192.0.2.1",
            "--public-ipv6=fe80::1%eth0",
            "--iface-can-reach=example.com",
            "--healthz-ip=localhost",
            "--healthz-port=65536",
            "--healthz-port=-1",
            "--subnet-lease-renew-margin=0",
            "--subnet-lease-renew-margin=1440",
            "--iptables-resync=0",
            "--iptables-resync=-5",
            "--subnet-file=",
            "--v=much",
        )
    ],
)
def test_a_value_out_of_its_range_is_refused(argument):
    [problem] = problems(argument)
    assert problem.where == argument.partition("=")[0]
    assert problem.expected


@pytest.mark.spec("flannel.md §1.5/2-margin")
@pytest.mark.parametrize("margin", ["0", "1440", "-1"])
def test_the_margin_must_leave_time_to_renew(margin):
    assert problems(f"--subnet-lease-renew-margin={margin}")[0].expected == "a whole number from 1 to 1439"


def test_our_own_flags():
    assert (DEFAULTS.state_dir, DEFAULTS.cni_socket) == ("/var/lib/weft", "/run/weft/cni.sock")
    options = parse_flags(["--state-dir=/s", "--cni-socket=/c", "--log-format=json"], {})
    assert (options.state_dir, options.cni_socket, options.log_format) == ("/s", "/c", "json")
    assert DEFAULTS.log_format == "text"
    assert not DEFAULTS.pod_metrics
    assert parse_flags(["--pod-metrics"], {}).pod_metrics
    assert problems("--log-format=xml")[0].expected == "text or json"
    assert problems("--state-dir=")[0].expected == "a path"
    assert "103 bytes" in problems(f"--cni-socket=/{'x' * 103}")[0].expected


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param(argument, marks=row(argument.partition("=")[0].removeprefix("--")))
        for argument in (
            "--vmodule=a=1",
            "--log_backtrace_at=a:1",
        )
    ],
)
def test_what_this_build_lacks_is_refused_and_its_default_is_not(argument):
    [problem] = problems(argument)
    assert problem.seen == "not in this build"
    [flag] = [flag for flag in FLAGS if f"--{flag.name}" == argument.partition("=")[0]]
    assert parse_flags([f"--{flag.name}={flag.default}"], {}) == DEFAULTS


POLICIES = {"network_policy_files"}  # which go with no Kubernetes
MESH = {"mesh", "peer", "password_file", "mesh_create", "mesh_relay"}  # with etcd's flags they end the start
BESIDE_FLAGS = {"help", "warnings", "public_where", "surroundings", "wireguard_key_file", "mesh_config"}


def test_a_variable_that_no_flag_has():
    assert parse_flags([], {"WIREGUARD_KEY_FILE": "/k"}).wireguard_key_file == "/k"
    assert DEFAULTS.wireguard_key_file == ""


@pytest.mark.spec("flannel.md §1.3/every-flag")
def test_every_flag_has_a_variable_and_a_field():
    assert {flag.field for flag in FLAGS} == set(Options.__struct_fields__) - BESIDE_FLAGS
    assert {flag.variable for flag in FLAGS} >= {"FLANNELD_ETCD_ENDPOINTS", "FLANNELD_IP_MASQ", "FLANNELD_V"}
    lines = [argument for name, _, argument, _ in ROWS if name != "version"]
    lines += ["--etcd-certfile=c", "--etcd-keyfile=k", "--etcd-username=u", "--etcd-password=hush", "--iface-regex=e"]
    lines += ["--state-dir=/s", "--cni-socket=/c", "--pod-metrics", "--log-format=json", "--network-policy=audit"]
    environ = dict(NODE)
    for line in lines:
        name, _, value = line.removeprefix("--").partition("=")
        environ["FLANNELD_" + name.upper().replace("-", "_")] = value or "true"
    given, meant = parse_flags([], environ), parse_flags(lines, NODE)
    # What this build lacks has no other value; the file of the password stands instead of the password.
    others = {flag.field for flag in FLAGS if not flag.later} - {"version", "etcd_password_file", *MESH, *POLICIES}
    assert {name for name in others if getattr(given, name) != getattr(DEFAULTS, name)} == others
    assert {name for name in others if getattr(given, name) != getattr(meant, name)} == set()
    by_file = {"FLANNELD_ETCD_USERNAME": "u", "FLANNELD_ETCD_PASSWORD_FILE": "/p"}
    assert parse_flags([], by_file).etcd_password_file == "/p"
    options = parse_flags([], {"FLANNELD_IP_MASQ": "T", "FLANNELD_V": "0b11", "FLANNELD_SUBNET_FILE": "/x"})
    assert (options.ip_masq, options.v, options.subnet_file) == (True, 3, "/x")


@pytest.mark.spec("flannel.md §1.3/command-line-wins")
def test_the_command_line_wins_and_an_empty_variable_is_none():
    environ = {"FLANNELD_V": "no number", "FLANNELD_IFACE": "eth0", "FLANNELD_IP_MASQ": "", "FLANNELD_SUBNET_FILE": ""}
    options = parse_flags(["--v=1", "--iface=eth1"], environ)
    assert (options.v, options.iface, options.ip_masq) == (1, ("eth1",), False)
    assert options.subnet_file == DEFAULTS.subnet_file


@pytest.mark.spec("flannel.md §1.3/repeatable-one-element")
def test_a_variable_gives_a_list_one_element():
    assert parse_flags([], {"FLANNELD_IFACE": "eth0,eth1"}).iface == ("eth0,eth1",)


@pytest.mark.spec("flannel.md §1.3/unparsable")
def test_a_variable_that_cannot_be_read_is_an_error():
    [problem] = problems(FLANNELD_IPTABLES_RESYNC="soon")
    assert (problem.where, problem.seen) == ("FLANNELD_IPTABLES_RESYNC", "'soon'")
    assert problems(FLANNELD_VMODULE="a=1")[0].seen == "not in this build"


@pytest.mark.spec("flannel.md §1.3/version-no-effect")
def test_the_variable_of_version_has_no_effect():
    options = parse_flags([], {"FLANNELD_VERSION": "true"})
    assert not options.version
    assert options.warnings == ("FLANNELD_VERSION has no effect; give --version",)


def test_a_variable_of_no_flag_is_warned_about_and_other_variables_are_not():
    options = parse_flags([], {"FLANNELD_IP_MASK": "true", "PATH": "/bin", "FLANNELD_ZZZZZZ": ""})
    assert options.warnings == (
        "FLANNELD_IP_MASK is the variable of no flag and is ignored. Did you mean FLANNELD_IP_MASQ?",
        "FLANNELD_ZZZZZZ is the variable of no flag and is ignored.",
    )


@pytest.mark.spec("flannel.md §1.5/1-flags-version")
def test_version_comes_before_the_environment_but_not_before_the_line_itself():
    assert parse_flags(["--version"], {"FLANNELD_V": "x"}).version
    assert not parse_flags(["--version", "--version=false"], {}).version
    assert problems("--version", "--bogus")[0].where == "--bogus"
    assert problems("--version=maybe")[0].where == "--version"


def test_help_names_every_flag_its_default_and_examples():
    text = help_text()
    for flag in FLAGS:
        assert f"  --{flag.name}" in text
        assert flag.default in ("", "false") or f"(default {flag.default})" in " ".join(text.split())
    assert "Examples:\n  weftd " in text
    assert all(len(line) <= 120 for line in text.splitlines())
    for line in text.partition("Examples:\n")[2].partition("\n\n")[0].splitlines():
        words = line.split()
        environ = dict([words.pop(0).split("=")]) if words[0].startswith("FLANNELD") else {}
        assert words[0] == "weftd"
        parse_flags(words[1:], environ)


def test_policies_come_from_files_or_the_api():
    assert (DEFAULTS.network_policy, DEFAULTS.network_policy_files) == ("off", "")
    variables = {"FLANNELD_NETWORK_POLICY": "audit", "FLANNELD_NETWORK_POLICY_FILES": "/p", "FLANNELD_IP_MASQ": "true"}
    options = parse_flags([], variables)
    assert (options.network_policy, options.network_policy_files, options.warnings) == ("audit", "/p", ())
    assert parse_flags(["--network-policy=enforce", "--kube-subnet-mgr"], NODE).network_policy == "enforce"
    [warning] = parse_flags(["--network-policy=enforce", "--network-policy-files=/p"], {}).warnings
    assert warning.startswith("--network-policy: without --ip-masq ")


@pytest.mark.parametrize(
    "argv, seen",
    [
        (["--network-policy=on"], "'on'"),
        (["--network-policy=enforce"], "given without policies"),
        (["--network-policy-files=/p"], "given without --network-policy"),
        (["--network-policy=audit", "--network-policy-files=/p", "--kube-subnet-mgr"], "given together with --kube-"),
    ],
)
def test_policies_that_nothing_would_enforce_are_refused(argv, seen):
    [problem] = problems(*argv, **NODE)
    assert problem.seen.startswith(seen)


def test_help_is_laid_out_for_a_terminal():
    head, *groups = help_text().removesuffix("\n").split("\n\n")
    assert head.startswith("weftd: the node daemon of weft.")
    assert [group.partition(":\n")[0] for group in groups[3:]] == [
        "Store",
        "Mesh: leases without a store, which the nodes keep among themselves",
        "Uplink: the interface that carries traffic between nodes",
        "Node",
        "Rules and routes",
        "Policies of pods",
        "Health and logs",
        "Kubernetes",
    ]
    health = groups[9].splitlines()
    assert health[3:5] == [
        "  --healthz-port=PORT",
        "        port of the health server (/healthz, /livez, /readyz, /metrics); 0: none (default 0)",
    ]
    assert health[12:14] == ["  --vmodule=PATTERN=N", "        log level per file [not in this build]"]
    assert health[-2:] == ["  --version", "        print the version and exit"]
    store = groups[3].splitlines()
    secret = store.index("  --etcd-password=TEXT")
    assert store[secret + 1 : secret + 3] == [
        "        etcd password; every user of this machine can read it in the process list: use",
        "        --etcd-password-file",
    ]


def test_a_prefix_without_its_slash_is_taken_as_upstream_takes_it_and_warned_of():
    options = parse_flags(["--etcd-prefix=net/a"], {})
    assert options.etcd_prefix == "net/a"
    [warning] = options.warnings
    assert "'net/a/config' is read, which is not '/net/a/config'" in warning
    [warning] = parse_flags([], {"FLANNELD_ETCD_PREFIX": "x"}).warnings
    assert warning.startswith("FLANNELD_ETCD_PREFIX: 'x' does not begin with '/'")


def test_what_differs_from_the_defaults_is_shown_but_for_secrets():
    assert changed(DEFAULTS) == []
    line = [
        "--ip-masq",
        "--v=2",
        "--etcd-endpoints=a:1,b:2",
        "--etcd-username=u",
        "--etcd-password=hush",
        "--iface=eth0",
        "--iface=eth1",
        "--iface-regex=^e[tn]",
        "--public-ip=192.0.2.1",
        "--subnet-file=/run/a b",
        "--iptables-forward-rules=false",
    ]
    assert sorted(changed(parse_flags(line, {}))) == [
        "etcd-endpoints=http://a:1,http://b:2",
        "etcd-password=(not shown)",
        "etcd-username=u",
        "iface-regex='^e[tn]'",
        "iface=eth0,eth1",
        "ip-masq=true",
        "iptables-forward-rules=false",
        "public-ip=192.0.2.1",
        "subnet-file='/run/a b'",
        "v=2",
    ]
