"""`weft policy explain` and `preview` ask a real API: with what rights, and what they say without them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import NOBODY, ApiServer
from tests.support.kubernetes.kubecluster import POLICY_RULES

POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
SERVICES = "/api/v1/namespaces/shop/services"
ADDRESS = {"web": "10.244.1.2", "db": "10.244.1.3", "db-2": "10.244.2.3", "far": "10.244.2.4"}
FROM_WEB = {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": 5432}]}
BLOCK = {"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "1.0.0.0/8"]}}]}


class Weft:
    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._server = server
        self._folder = folder

    def policy(self, *words: str, token: str = "admin-token", **environ: str) -> tuple[int, str]:  # noqa: S107 - a test's
        config = kubeobjects.write_kubeconfig(self._folder / "config", self._server.api(token))
        ran = subprocess.run(
            [Path(sys.executable).parent / "weft", "policy", *words],
            env={"HOME": str(self._folder), "KUBECONFIG": str(config), **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def first(self, *words: str) -> str:
        return self.policy("explain", *words)[1].splitlines()[0]


@pytest.fixture(scope="module")
def shop(shared_apiserver: ApiServer) -> Iterator[ApiServer]:
    """Pods of two namespaces, a policy that lets web reach db, and Services of both."""
    api = shared_apiserver.admin
    for space, name, app in (
        ("shop", "web", "web"),
        ("shop", "db", "db"),
        ("shop", "db-2", "db"),
        ("far", "far", "web"),
    ):
        kubeobjects.add_pod(api, space, name, "node1", ip=ADDRESS[name], app=app)
    spec: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [FROM_WEB]}
    api.post(POLICIES.format("shop"), {"metadata": {"name": "db"}, "spec": spec})
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [BLOCK]}
    api.post(POLICIES.format("shop"), {"metadata": {"name": "web"}, "spec": spec})
    ports = [{"name": "sql", "port": 80, "targetPort": 5432}, {"name": "other", "port": 81, "targetPort": 81}]
    api.post(SERVICES, {"metadata": {"name": "store"}, "spec": {"selector": {"app": "db"}, "ports": ports}})
    api.post(SERVICES, {"metadata": {"name": "bare"}, "spec": {"ports": ports}})
    yield shared_apiserver
    for name in ("store", "bare"):
        api.delete(f"{SERVICES}/{name}")
    api.delete(POLICIES.format("shop"))
    kubeobjects.clear(api)


@pytest.fixture
def weft(shop: ApiServer, tmp_path: Path) -> Weft:
    return Weft(shop, tmp_path)


def may(server: ApiServer, *rules: tuple[str, str, str]) -> None:
    made = [{"apiGroups": [group], "resources": [what], "verbs": [verb]} for group, what, verb in rules]
    kubeobjects.grant(server.admin, "asks", kubeobjects.user("nobody"), made)


def test_pods_of_any_node_by_their_names_and_addresses(weft: Weft):
    assert weft.first("shop/web", "shop/db:5432") == "shop/web → shop/db:5432 tcp: allowed"
    status, text = weft.policy("explain", "far/far", f"{ADDRESS['db']}:5432")
    assert status == 1
    assert text.startswith("far/far → shop/db:5432 tcp: refused\n")
    assert "from[0]: far/far is not in namespace shop" in text
    assert weft.first("shop/web", "192.0.2.9:80") == "shop/web → 192.0.2.9:80 tcp: allowed"


def test_a_service_is_each_of_its_pods_at_their_port(weft: Weft, shop: ApiServer):
    status, text = weft.policy("explain", "shop/web", "shop/store:80")
    assert status == 0
    assert text.splitlines()[:3] == [
        "Service shop/store leads to:",
        "shop/web → shop/db:5432 tcp: allowed",
        "shop/web → shop/db-2:5432 tcp: allowed",
    ]
    address = shop.admin.get(f"{SERVICES}/store")["spec"]["clusterIP"]
    status, text = weft.policy("explain", "far/far", f"{address}:81", "-o", "json")
    found = json.loads(text)
    assert (status, found["service"], found["allowed"]) == (1, "shop/store", False)
    assert [each["port"] for each in found["verdicts"]] == [81, 81]
    assert (
        "which port of Service shop/store is meant? It has 80/tcp, 81/tcp"
        in weft.policy("explain", "shop/web", "svc/shop/store")[1]
    )
    assert "Service shop/bare leads to no pod: it selects none" in weft.policy("explain", "shop/web", "shop/bare:80")[1]


def test_outside_is_an_address_that_no_block_names(weft: Weft):
    assert weft.first("outside", "shop/web:80") == "outside (2.0.0.1) → shop/web:80 tcp: allowed"
    assert weft.first("1.0.0.1", "shop/web:80") == "1.0.0.1 → shop/web:80 tcp: refused"
    assert weft.first("outside", "shop/db:5432").endswith("refused")


def test_what_is_not_there_is_said(weft: Weft):
    status, text = weft.policy("explain", "shop/wbe", "shop/db:5432")
    assert status == 2
    assert "FLAG-001 shop/wbe: the API has no such pod or Service" in text
    assert "See `kubectl get pods,services -n shop`" in text
    assert weft.policy("explain", "shop/we%62", "shop/db")[0] == 2


def test_what_would_a_file_break(weft: Weft, tmp_path: Path):
    file = tmp_path / "shut.yaml"
    file.write_text("""
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}}
""")
    assert "shop/web → shop/db: no more 5432/tcp\n" in weft.policy("preview", str(file))[1]
    assert weft.policy("explain", "shop/web", "shop/db:5432", "--with", str(file))[0] == 1
    assert weft.first("shop/web", "shop/db:5432").endswith("allowed")


ONE = (
    ("", "pods", "get"),
    ("networking.k8s.io", "networkpolicies", "list"),
    ("", "namespaces", "get"),
)


def test_the_least_rights_are_enough_and_each_that_lacks_is_named(weft: Weft, shop: ApiServer):
    asked = ("explain", "shop/web", "shop/db:5432")
    may(shop, *ONE)
    assert weft.policy(*asked, token=NOBODY)[0] == 0
    for lacking in ONE:
        may(shop, *(each for each in ONE if each != lacking))
        status, text = weft.policy(*asked, token=NOBODY)
        group, what, verb = lacking
        assert status == 1
        assert "API-001" in text
        assert f'apiGroups: ["{group}"], resources: ["{what}"], verbs: ["{verb}"]' in text
    may(shop, *ONE)
    text = weft.policy("explain", "shop/web", "shop/store:80", token=NOBODY)[1]
    assert 'resources: ["services"], verbs: ["get"]' in text


def test_the_account_of_weftd_can_ask_about_pods(weft: Weft, shop: ApiServer):
    kubeobjects.grant(shop.admin, "asks", kubeobjects.user("nobody"), POLICY_RULES)
    assert weft.policy("explain", "shop/web", "shop/db:5432", token=NOBODY)[0] == 0


def test_without_a_kubeconfig_it_says_what_to_give(weft: Weft):
    status, text = weft.policy("explain", "shop/web", "shop/db", KUBECONFIG="")
    assert status == 2
    assert "Give --kubeconfig=FILE, or --from FILES" in text
