"""`weft policy` by files: what people and programs read."""

import json
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from weft.daemon.commands import policy
from weft.model.errors import ConfigError
from weft.model.node.nodestate import PoliciesTold, PolicyEffect
from weft.model.value import replace

CLUSTER = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
status: {podIPs: [{ip: 10.244.1.2}, {ip: 'fd00::2'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {containers: [{ports: [{name: sql, containerPort: 5432}]}]}
status: {podIPs: [{ip: 10.244.1.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: new}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: api}}}]
    ports: [{port: sql}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: shut, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}}
"""
CHANGED = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress, Egress]
  ingress:
  - from: [{namespaceSelector: {matchLabels: {team: a}}}]
    ports: [{port: 5432}]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    return str(file)


@pytest.fixture
def changed(tmp_path: Path) -> str:
    file = tmp_path / "changed.yaml"
    file.write_text(CHANGED)
    return str(file)


def run(*words: str) -> tuple[object, str]:
    ran = CliRunner().invoke(policy.policy, words, standalone_mode=False, catch_exceptions=False)
    return ran.return_value, ran.output


def test_why_it_is_refused(cluster: str):
    assert run("explain", "shop/web", "shop/db:5432", "--from", cluster) == (
        1,
        """shop/web → shop/db:5432 tcp: refused

egress of shop/web: allowed: no policy restricts its egress

ingress of shop/db: refused: no rule of shop/db, shop/shut allows it
  shop/db
    ingress[0] does not fit
      from[0]: shop/web has label app=web, and app=api is asked for
  shop/shut: no rules
  to allow it: add pods app=web to ingress[0].from of shop/db
""",
    )


def test_what_if_a_file_were_applied(cluster: str, changed: str):
    """The file names namespace `shop`, and does not say its labels: they stay."""
    status, text = run("explain", "shop/web", "shop/db:5432/TCP", "--from", cluster, "--with", changed)
    assert status == 0
    assert "    ingress[0] allows it\n      from[0]: pods all of namespaces team=a\n" in text


def test_programs_get_the_verdict(cluster: str):
    status, text = run("explain", "192.0.2.7", "shop/db:53/udp", "--from", cluster, "-o", "json")
    found = json.loads(text)
    assert status == 1
    assert [found[key] for key in ("source", "target", "protocol", "port", "allowed")] == [
        "192.0.2.7",
        "shop/db",
        "udp",
        53,
        False,
    ]
    assert [side["direction"] for side in found["sides"]] == ["egress", "ingress"]


@pytest.mark.parametrize(
    "source, target, first",
    [
        ("shop/web", "shop/db", "shop/web → shop/db icmp: refused"),
        ("shop/db", "fd00::2", "shop/db → shop/web icmp: allowed"),
        ("shop/db", "[fd00::9]:80", "shop/db → [fd00::9]:80 tcp: allowed"),
        ("new", "shop/web:80", "default/new → shop/web:80 tcp: allowed"),
        ("fd00::9", "[fd00::2]:80/sctp", "fd00::9 → shop/web:80 sctp: allowed"),
    ],
)
def test_the_ends(cluster: str, source: str, target: str, first: str):
    assert run("explain", source, target, "--from", cluster)[1].splitlines()[0] == first


def test_of_a_service_each_pod_is_judged_and_one_explained(cluster: str, tmp_path: Path):
    (tmp_path / "service.yaml").write_text("""
apiVersion: v1
kind: Service
metadata: {name: sql, namespace: shop}
spec: {selector: {app: db}, ports: [{port: 80, targetPort: sql}]}
""")
    given = ("--from", cluster, "--from", str(tmp_path / "service.yaml"))
    status, text = run("explain", "shop/web", "shop/sql", *given)
    assert status == 1
    assert text.startswith(
        "Service shop/sql leads to:\nshop/web → shop/db:5432 tcp: refused\n\nshop/web → shop/db:5432 tcp: refused\n"
    )
    found = json.loads(run("explain", "shop/web", "shop/sql", *given, "-o", "json")[1])
    assert (found["service"], found["allowed"], len(found["verdicts"])) == ("shop/sql", False, 1)
    with pytest.raises(click.BadParameter, match="which port of Service shop/sql is meant"):
        run("explain", "shop/web", "shop/sql:81", *given)


def test_files_or_an_api_but_not_both(cluster: str):
    with pytest.raises(ConfigError, match="--from and --kubeconfig; expected one of them"):
        run("explain", "shop/web", "shop/db", "--from", cluster, "--kubeconfig", cluster)


@pytest.mark.parametrize(
    "source, target, seen",
    [
        (
            "shop/wbe",
            "shop/db",
            "'shop/wbe' is no pod; expected one of shop/web, shop/db, default/new, an address, or outside",
        ),
        ("web", "shop/db", "'default/web' is no pod"),
        ("shop/web", "shop/db:70000", "port 70000 is not 1 to 65535"),
        ("shop/web", "shop/db:80/gre", "gre is not one of tcp, udp, sctp"),
        ("shop/web", "shop/db:http", "an address, or outside; a port is a number, as 80 or 53/udp"),
        ("192.0.2.7", "fd00::2", "the two addresses are of different families"),
    ],
)
def test_ends_that_there_are_not(cluster: str, source: str, target: str, seen: str):
    with pytest.raises(click.BadParameter) as refused:
        run("explain", source, target, "--from", cluster)
    assert seen in refused.value.format_message()


def test_what_is_right_needs_no_words(cluster: str):
    assert run("check", cluster) == (0, "Nothing to say of 2 policy objects.\n")


def test_what_is_probably_not_meant(cluster: str, changed: str):
    status, text = run("check", changed)
    assert status == 1
    assert text.startswith("shop/db spec.egress: no rule allows DNS (port 53/udp). The pods cannot resolve names;")


def test_what_cannot_be_enforced(tmp_path: Path):
    """By a directory, in which other files may be."""
    (tmp_path / "policy.yml").write_text(CHANGED.replace("5432", "0"))
    (tmp_path / "README").write_text("a: [")
    status, text = run("check", str(tmp_path), "-o", "json")
    found = json.loads(text)
    assert (status, found["policies"]) == (1, 1)
    assert [each["where"] for each in found["problems"]] == ["NetworkPolicy shop/db: spec.ingress[0].ports[0].port"]
    assert "POL-005 NetworkPolicy shop/db: spec.ingress[0].ports[0].port: 0; expected" in run("check", str(tmp_path))[1]
    assert "POL-005" in run("preview", str(tmp_path), "--from", str(tmp_path))[1]


def test_a_file_without_a_policy(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"POL-005 .*a.yaml: no policy is in it; expected a NetworkPolicy or a"):
        run("check", str(tmp_path / "a.yaml"))


def test_a_file_that_is_no_text(tmp_path: Path):
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="POL-005 a file: 'utf-8' codec"):
        run("check", str(tmp_path))


def test_what_a_file_would_change(cluster: str, changed: str):
    assert run("preview", changed, "--from", cluster)[1] == (
        "shop/db: its egress becomes restricted\n"
        "shop/web → shop/db: now 5432/tcp\n"
        "shop/db → shop/web: no more 5432/tcp, other ports/tcp, all ports/udp, all ports/sctp, icmp\n"
        "shop/db → default/new: no more 5432/tcp, other ports/tcp, all ports/udp, all ports/sctp, icmp\n"
    )
    assert run("preview", cluster, "--from", cluster)[1] == "Nothing changes between these pods.\n"


def test_what_would_be_free(tmp_path: Path, cluster: str, changed: str):
    (tmp_path / "free.yaml").write_text(CHANGED.replace(", Egress]", "]"))
    (tmp_path / "pods.yaml").write_text("---".join(CLUSTER.split("---")[:3]))
    now = "--from", str(tmp_path / "pods.yaml"), "--from", changed
    assert "shop/db: its egress is restricted no more\n" in run("preview", str(tmp_path / "free.yaml"), *now)[1]


def told(files: str = "", **changes: object) -> PoliciesTold:
    effect = PolicyEffect(since=time.time() - 90, changing=("NetworkPolicy shop/db",))
    return replace(PoliciesTold(effect=effect, settled=True, files=files), **changes)


def test_a_node_that_reads_files_is_asked_before_an_api(cluster: str, changed: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(policy, "told_here", lambda: told(cluster))
    status, text = run("explain", "shop/web", "shop/db:5432")
    assert status == 1
    since, behind = text.splitlines()[-2:]
    assert since.startswith("On this node: In effect since ")
    assert behind == "On this node: Not in effect yet, what was before holds: NetworkPolicy shop/db."
    found = json.loads(run("explain", "shop/web", "shop/db:5432", "-o", "json")[1])
    assert found["effect"]["changing"] == ["NetworkPolicy shop/db"]
    assert "On this node" not in run("explain", "shop/web", "shop/db:5432", "--with", changed)[1]
    assert "shop/db: its egress becomes restricted\n" in run("preview", changed)[1]


def test_a_node_that_reads_an_api_says_nothing_of_other_files(cluster: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(policy, "told_here", told)
    assert "On this node" not in run("explain", "shop/web", "shop/db", "--from", cluster)[1]
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(ConfigError, match="no KUBECONFIG"):
        run("explain", "shop/web", "shop/db")
