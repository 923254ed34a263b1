"""What is installed into a cluster: the real API takes it, and weftd needs each of its rights and no other."""

import json
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import Controllers
from tests.support.kubernetes.kubeapi import ApiError
from tests.support.kubernetes.kubecluster import MANIFEST, RULES, KubeCluster
from tests.support.kubernetes.kubeobjects import NODES, PREFIX, objects
from tests.support.weftd import eventually
from weft.cni.install import conflist
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS

DEPLOY = MANIFEST.parent
TOKEN = DEPLOY / "token.yaml"
# Without that to list policies, nothing is said of them: test_policies.py.
RIGHTS = [(rule["resources"][0], verb) for rule in RULES for verb in rule["verbs"] if rule["apiGroups"] == [""]]


def without(resource: str, verb: str) -> list[dict[str, Any]]:
    """The manifest's rules but for one right."""
    left = [
        {**rule, "verbs": [each for each in rule["verbs"] if (rule["resources"], each) != ([resource], verb)]}
        for rule in RULES
    ]
    return [rule for rule in left if rule["verbs"]]


@pytest.fixture
def installed(cluster: KubeCluster, tmp_path: Path) -> Iterator[KubeCluster]:
    """A cluster with the manifest, whose daemons ask as its account, by the token of its secret."""
    server = cluster.server
    server.kubectl("apply", "-f", str(MANIFEST), "-f", str(TOKEN))
    tokens = ("--controllers", "serviceaccount-token-controller", "--root-ca-file", server.ca)
    key = ("--service-account-private-key-file", server.certs.server_key)
    controllers = Controllers(tmp_path / "controllers", server).start(*tokens, *key)
    try:
        secret = eventually(lambda: _token(cluster), seconds=20)
        cluster.token = b64decode(secret["token"]).decode()
        yield cluster
    finally:
        controllers.kill()
        kinds = "daemonset,configmap,secret,serviceaccount,clusterrole,clusterrolebinding"
        server.kubectl("--namespace=kube-flannel", "delete", "--wait=false", kinds, "--selector=k8s-app=flannel")


def _token(cluster: KubeCluster) -> dict[str, str] | None:
    secret = cluster.server.admin.get("/api/v1/namespaces/kube-flannel/secrets/flannel-token")
    data: dict[str, str] = secret.get("data") or {}
    return data if "token" in data else None


def test_a_server_takes_every_object(apiserver):
    for namespace in ("kube-flannel", "weft-handback"):
        kubeobjects.add_namespace(apiserver.admin, namespace)  # a dry run makes none for what is in it
    others = {"alerts.yaml", "monitoring.yaml"}  # none of the API's kinds, and those of an operator
    files = [file for file in DEPLOY.glob("*.yaml") if file.name not in others]
    assert {MANIFEST, TOKEN} < set(files)
    for file in files:
        said = apiserver.kubectl("apply", "--dry-run=server", "-f", str(file))
        assert said.count("(server dry run)") == len([each for each in yaml.safe_load_all(file.read_text()) if each])


def test_the_configuration_in_it_is_one():
    [config] = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ConfigMap"]
    netconf = parse_netconf(config["data"]["net-conf.json"], backends=BACKENDS, etcd=False)
    assert netconf.backend == "vxlan"
    assert not netconf.warnings
    # For every runtime: old ones read the one version, newer ones take the newest, and so ask for STATUS and GC.
    assert json.loads(config["data"]["cni-conf.json"]) == conflist.CONFLIST
    assert conflist.CONFLIST["cniVersion"] == "0.3.1"
    assert conflist.CONFLIST["cniVersions"] == ["1.1.0", "1.0.0", "0.4.0", "0.3.1"]


def test_what_the_image_is_built_of_reaches_its_build():
    """A file that `.containerignore` keeps back ends the build."""
    ignored = (DEPLOY.parent / ".containerignore").read_text().split()
    assert ignored[0] == "*"
    passed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    sources = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert sources == passed
    assert all((DEPLOY.parent / source).exists() for source in sources)


def test_with_its_rights_and_no_other_a_daemon_works(installed: KubeCluster):
    installed.configure()
    one, two = installed.nodes(1, 2)
    one.sees("ip route", "10.5.2.0/24 via 10.5.2.0 dev flannel.1")
    eventually(lambda: two.object["status"].get("conditions"))
    assert "API-001" not in one.log + two.log
    with pytest.raises(ApiError, match="forbidden"):
        installed.server.api(installed.token).delete(f"{NODES}/node2")


@pytest.mark.parametrize("resource, verb", RIGHTS)
def test_each_right_is_needed_and_is_named_when_it_is_missing(cluster: KubeCluster, resource, verb):
    cluster.configure()
    kubeobjects.grant(cluster.server.admin, "weft", kubeobjects.user("nobody"), without(resource, verb))
    node = cluster.node(1).register().spawn()
    node.says(rf'API-001 .*resources: \["{resource}"\], verbs: \["{verb}"\]}}', seconds=20)
    kubeobjects.grant(cluster.server.admin, "weft", kubeobjects.user("nobody"), RULES)
    node.wait_ready()
    other = cluster.node(2).register().start()
    node.sees("ip route", str(other.v4), seconds=20)


def test_the_unit_is_one_that_systemd_understands(tmp_path: Path):
    program = tmp_path / "weftd"
    shutil.copy("/bin/true", program)
    unit = tmp_path / "weftd.service"
    unit.write_text((DEPLOY / "weftd.service").read_text().replace("/opt/weft/bin/weftd", str(program)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in checked.stderr.splitlines() if "weftd.service" in line]
    assert complaints == []
    assert checked.returncode == 0, checked.stderr


def test_annotations_are_the_prefix_of_flannels(cluster: KubeCluster):
    cluster.configure()
    node = cluster.node(1).register().start()
    assert node.object["metadata"]["annotations"].keys() == {
        PREFIX + name for name in ("backend-data", "backend-type", "kube-subnet-manager", "public-ip")
    }


@pytest.mark.parametrize("name", ["base", "dual-stack", "host-gw", "wireguard"])
def test_a_server_takes_what_kustomize_makes(apiserver, name: str):
    made = apiserver.kubectl("kustomize", str(DEPLOY / "kustomize" / name))
    kubeobjects.add_namespace(apiserver.admin, "kube-flannel")
    apiserver.kubectl("apply", "--dry-run=server", "-f", "-", stdin=made)
    wanted, found = objects(MANIFEST.read_text()), objects(made)
    network = found["ConfigMap", "kube-flannel-cfg"]["data"]["net-conf.json"]
    checked = parse_netconf(json.dumps(network), backends=BACKENDS)
    assert (checked.families, checked.backend) == {
        "base": ((4,), "vxlan"),
        "dual-stack": ((4, 6), "vxlan"),
        "host-gw": ((4,), "host-gw"),
        "wireguard": ((4,), "wireguard"),
    }[name]
    wanted["ConfigMap", "kube-flannel-cfg"]["data"]["net-conf.json"] = network
    assert found == wanted
