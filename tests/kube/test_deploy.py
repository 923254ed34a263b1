"""What is installed into a cluster: the real API takes it, and weftd needs each of its rights and no other."""

import json
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import kubeobjects
from tests.support.apiserver import Controllers, programs
from tests.support.kubeapi import Api, ApiError
from tests.support.kubecluster import MANIFEST, RULES, KubeCluster
from tests.support.kubeobjects import NODES, PREFIX
from tests.support.weftd import eventually
from weft import __version__
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS

DEPLOY = MANIFEST.parent
CHART = DEPLOY / "chart"
RIGHTS = [(rule["resources"][0], verb) for rule in RULES for verb in rule["verbs"]]


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
    server.kubectl("apply", "-f", str(MANIFEST))
    tokens = ("--controllers", "serviceaccount-token-controller", "--root-ca-file", server.ca)
    key = ("--service-account-private-key-file", server.certs.server_key)
    controllers = Controllers(tmp_path / "controllers", server).start(*tokens, *key)
    try:
        secret = eventually(lambda: _token(cluster), seconds=20)
        cluster.token = b64decode(secret["token"]).decode()
        yield cluster
    finally:
        controllers.kill()
        server.kubectl("delete", "--wait=false", "-f", str(MANIFEST))


def _token(cluster: KubeCluster) -> dict[str, str] | None:
    secret = cluster.server.admin.get("/api/v1/namespaces/kube-flannel/secrets/flannel-token")
    data: dict[str, str] = secret.get("data") or {}
    return data if "token" in data else None


def test_a_server_takes_every_object(apiserver):
    kubeobjects.add_namespace(apiserver.admin, "kube-flannel")  # a dry run makes none for what is in it
    said = apiserver.kubectl("apply", "--dry-run=server", "-f", str(MANIFEST))
    assert said.count("(server dry run)") == len(list(yaml.safe_load_all(MANIFEST.read_text())))


def test_the_configuration_in_it_is_one():
    [config] = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ConfigMap"]
    netconf = parse_netconf(config["data"]["net-conf.json"], backends=BACKENDS, etcd=False)
    assert netconf.backend == "vxlan"
    assert not netconf.warnings
    plugins = json.loads(config["data"]["cni-conf.json"])["plugins"]
    assert [plugin["type"] for plugin in plugins] == ["flannel", "portmap"]


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


def render(*values: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """What helm makes of the chart with `--set` of these values."""
    sets = [argument for value in values for argument in ("--set", value)]
    release = ("weft", str(CHART), "--namespace", "kube-flannel", "--kube-version", "1.34.4")
    command = [str(programs() / "helm"), "template", *release, *sets]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not check or ran.returncode == 0, ran.stderr
    return ran


def objects(text: str) -> dict[tuple[str, str], Any]:
    """Objects of a manifest by kind and name, the JSON in a ConfigMap as values."""
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
    for (kind, _), each in found.items():
        if kind == "ConfigMap":
            each["data"] = {name: json.loads(value) for name, value in each["data"].items()}
    return found


def daemon(*values: str) -> Any:
    return objects(render(*values).stdout)["DaemonSet", "kube-flannel-ds"]["spec"]["template"]["spec"]


def netconf(*values: str) -> Any:
    return objects(render(*values).stdout)["ConfigMap", "kube-flannel-cfg"]["data"]["net-conf.json"]


def test_the_chart_renders_the_manifest_for_its_default_values(apiserver):
    rendered = render().stdout
    wanted = objects(MANIFEST.read_text())
    del wanted["Namespace", "kube-flannel"]  # made before, as for flannel's chart
    assert objects(rendered) == wanted
    kubeobjects.add_namespace(apiserver.admin, "kube-flannel")
    apiserver.kubectl("apply", "--dry-run=server", "-f", "-", stdin=rendered)


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_helm_finds_nothing_wrong_with_the_chart():
    ran = subprocess.run([programs() / "helm", "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_values_of_the_network_become_its_configuration():
    assert netconf("podCidrv6=2001:db8::/56") == {
        "Network": "10.244.0.0/16",
        "EnableIPv6": True,
        "IPv6Network": "2001:db8::/56",
        "EnableNFTables": False,
        "Backend": {"Type": "vxlan"},
    }
    assert netconf("podCidr=", "podCidrv6=2001:db8::/56")["EnableIPv4"] is False
    options = ("backendPort=4789", "vni=7", "GBP=true", "directRouting=true", "mtu=1400", "macPrefix=0E-2A")
    vxlan = netconf(*(f"flannel.{option}" for option in options), "flannel.enableNFTables=true")
    assert vxlan["EnableNFTables"] is True
    assert vxlan["Backend"] == {
        "Type": "vxlan",
        "Port": 4789,
        "VNI": 7,
        "GBP": True,
        "DirectRouting": True,
        "MTU": 1400,
        "MacPrefix": "0E-2A",
    }
    parse_netconf(json.dumps(vxlan), backends=BACKENDS)
    assert netconf("flannel.backend=host-gw", "flannel.vni=7")["Backend"] == {"Type": "host-gw"}


def test_values_of_wireguard_become_its_configuration():
    key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
    options = ("backendPort=1", "backendPortv6=2", "mtu=1400", "tunnelMode=auto", "keepaliveInterval=25", f"psk={key}")
    made = netconf("flannel.backend=wireguard", *(f"flannel.{option}" for option in options))
    assert made["Backend"] == {
        "Type": "wireguard",
        "ListenPort": 1,
        "ListenPortV6": 2,
        "MTU": 1400,
        "Mode": "auto",
        "PersistentKeepaliveInterval": 25,
        "PSK": key,
    }
    assert parse_netconf(json.dumps(made), backends=BACKENDS).backend == "wireguard"


def test_values_of_the_daemon_set_become_its_parts():
    pod = daemon("flannel.image.repository=registry.test/weft", "flannel.image.tag=v9")
    assert {each["image"] for each in [*pod["initContainers"], *pod["containers"]]} == {"registry.test/weft:v9"}
    pod = daemon("flannel.healthz.port=0", "flannel.skipCNIConfigInstallation=true")
    assert [each["name"] for each in pod["initContainers"]] == ["install-cni-plugin"]
    [container] = pod["containers"]
    assert container["args"] == ["--ip-masq", "--kube-subnet-mgr"]
    assert not {"ports", "livenessProbe", "readinessProbe"} & container.keys()
    pod = daemon("flannel.cniBinDir=/usr/lib/cni", "flannel.nodeSelector.a=b", "global.imagePullSecrets[0].name=s")
    assert {"path": "/usr/lib/cni", "type": "DirectoryOrCreate"} in [each.get("hostPath") for each in pod["volumes"]]
    assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"a": "b"}, [{"name": "s"}])
    assert ("Secret", "flannel-token") not in objects(render("serviceToken=false").stdout)


@pytest.mark.parametrize(
    "value, words",
    [
        ("netpol.enabled=true", "weft has no network policies"),
        ("podCidr=", "expected the network of one family at least"),
        ("flannel.backend=ipsec", "backend"),
        ("flannel.vni=-1", "vni"),
        ("flannel.bakend=vxlan", "bakend"),
    ],
)
def test_values_that_mean_nothing_are_refused(value: str, words: str):
    ran = render(value, check=False)
    assert ran.returncode == 1
    assert words in ran.stderr


def test_the_admission_policy_lets_a_pod_patch_its_own_node_alone(apiserver):
    api = apiserver.admin
    for node in ("own", "other"):
        kubeobjects.add_node(api, node, "10.244.77.0/24" if node == "own" else "10.244.78.0/24")
    kubeobjects.add_namespace(api, "kube-flannel")
    kubeobjects.service_account(api, "kube-flannel", "flannel")
    pod = kubeobjects.add_pod(api, "kube-flannel", "weft-on-own", "own", account="flannel")
    kubeobjects.grant(api, "admission", kubeobjects.account("kube-flannel", "flannel"), RULES)
    bound = apiserver.api(kubeobjects.service_account(api, "kube-flannel", "flannel", pod=pod))
    free = apiserver.api(kubeobjects.service_account(api, "kube-flannel", "flannel"))
    policy = str(DEPLOY / "admission.yaml")
    kubeobjects.annotate(bound, "other", before="allowed")
    try:
        apiserver.kubectl("apply", "-f", policy)
        eventually(lambda: _refused(bound, "other"), seconds=20)
        kubeobjects.annotate(bound, "own", after="allowed")
        assert _refused(free, "own")
        kubeobjects.annotate(api, "other", others="are not asked")
    finally:
        apiserver.kubectl("delete", "-f", policy)


def _refused(api: Api, node: str) -> bool:
    try:
        kubeobjects.annotate(api, node, tried="yes")
    except ApiError as error:
        return error.code == HTTPStatus.FORBIDDEN and "weft's token is of a pod on another node" in str(error)
    return False


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
