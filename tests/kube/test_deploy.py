"""What is installed into a cluster: the real API takes it, and weftd needs each of its rights and no other."""

import itertools
import json
import re
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.docs import deploy
from tests.kube import helmunit
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ApiServer, Controllers, programs
from tests.support.kubernetes.kubeapi import Api, ApiError
from tests.support.kubernetes.kubecluster import MANIFEST, RULES, KubeCluster
from tests.support.kubernetes.kubeobjects import NODES, PREFIX
from tests.support.weftd import eventually
from weft import __version__
from weft.cni.install import conflist
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS

DEPLOY = MANIFEST.parent
CHART = DEPLOY / "chart"
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


def render(*values: str, files: Sequence[Path] = (), check: bool = True) -> "subprocess.CompletedProcess[str]":
    """What helm makes of the chart with `--set` of these values, over those of files."""
    sets = [*(f"--values={file}" for file in files), *(argument for value in values for argument in ("--set", value))]
    release = ("weft", str(CHART), "--namespace", "kube-flannel", "--kube-version", "1.34.4")
    command = [str(programs() / "helm"), "template", *release, *sets]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert not check or ran.returncode == 0, ran.stderr
    return ran


def objects(text: str) -> dict[tuple[str, str], Any]:
    """Objects of a manifest by kind and name, the JSON in a ConfigMap as values."""
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
    for (kind, _), each in found.items():
        if kind == "ConfigMap":
            each["data"] = {name: json.loads(value) for name, value in each["data"].items()}
    return found


def pruned(thing: Any) -> Any:
    """A manifest's part without what is empty."""
    if isinstance(thing, dict):
        return {key: pruned(inner) for key, inner in thing.items() if inner not in ({}, [])}
    return [pruned(each) for each in thing] if isinstance(thing, list) else thing


def daemon(*values: str) -> Any:
    return objects(render(*values).stdout)["DaemonSet", "kube-flannel-ds"]["spec"]["template"]["spec"]


def netconf(*values: str) -> Any:
    return objects(render(*values).stdout)["ConfigMap", "kube-flannel-cfg"]["data"]["net-conf.json"]


def test_the_chart_renders_the_manifest_for_its_default_values(apiserver):
    rendered = render().stdout
    wanted = objects(MANIFEST.read_text())
    del wanted["Namespace", "kube-flannel"]  # made before, as for flannel's chart
    found = {key: each for key, each in objects(rendered).items() if key[1] != "weft-handback"}
    daemon_set = found["DaemonSet", "kube-flannel-ds"]
    noted = daemon_set["metadata"].pop("annotations")  # as `kubectl apply` would have noted
    assert json.loads(noted["kubectl.kubernetes.io/last-applied-configuration"]) == daemon_set
    del daemon_set["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
    assert pruned(found) == pruned(wanted)
    kubeobjects.add_namespace(apiserver.admin, "kube-flannel")
    apiserver.kubectl("apply", "--dry-run=server", "-f", "-", stdin=rendered)


def test_the_chart_gives_the_rights_of_policies_as_the_manifest_for_them(apiserver):
    wanted = objects((DEPLOY / "network-policy.yaml").read_text())
    found = objects(render("netpol.enabled=true", "netpol.mode=audit").stdout)
    assert {key: pruned(found[key]) for key in wanted} == wanted
    assert daemon("netpol.enabled=true")["containers"][0]["args"][-2:] == [
        "--network-policy=enforce",
        "--healthz-port=8081",
    ]
    assert not wanted.keys() & objects(render().stdout).keys()
    overlay = apiserver.kubectl("kustomize", str(DEPLOY / "kustomize" / "network-policy"))
    made = objects(overlay)
    assert {key: made[key] for key in wanted} == wanted
    assert (
        "--network-policy=enforce"
        in made["DaemonSet", "kube-flannel-ds"]["spec"]["template"]["spec"]["containers"][0]["args"]
    )
    kubeobjects.add_namespace(apiserver.admin, "kube-flannel")
    apiserver.kubectl("apply", "--dry-run=server", "-f", "-", stdin=overlay)


def test_the_chart_hands_back_as_the_manifest_for_it_before_it_is_deleted(apiserver):
    wanted = objects((DEPLOY / "handback.yaml").read_text())["DaemonSet", "weft-handback"]
    found = {kind: each for (kind, name), each in objects(render().stdout).items() if name == "weft-handback"}
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in found.values()} == {"pre-delete"}
    # helm makes those with the lower number first, and waits for Jobs alone.
    order = sorted(found, key=lambda kind: int(found[kind]["metadata"]["annotations"]["helm.sh/hook-weight"]))
    assert (order[-1], len(found)) == ("Job", 5)
    assert found["DaemonSet"]["spec"] == wanted["spec"]

    for text in ((DEPLOY / "handback.yaml").read_text(), render().stdout):
        for namespace in ("kube-flannel", "weft-handback"):
            kubeobjects.add_namespace(apiserver.admin, namespace)
        apiserver.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)

    by_choice = objects(render("handback.removeNetwork=true", "handback.timeoutSeconds=9").stdout)
    pod = by_choice["DaemonSet", "weft-handback"]["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["args"] == ["cni", "handback", "--remove-network"]
    assert by_choice["Job", "weft-handback"]["spec"]["activeDeadlineSeconds"] == 9
    assert not [name for _, name in objects(render("handback.enabled=false").stdout) if name == "weft-handback"]


@pytest.mark.parametrize("copy, original", deploy.COPIES.items())
def test_what_is_fetched_by_its_address_is_a_file_and_copies_are_as_they_should_be(copy: Path, original: Path):
    """The raw address of a symbolic link gives the text of a path."""
    assert not copy.is_symlink()
    assert not original.is_symlink()
    assert copy.read_text() == original.read_text()


def test_pages_made_from_the_chart_and_the_alerts_are_as_they_should_be():
    assert deploy.README.read_text() == deploy.readme()
    assert deploy.MONITORING.read_text() == deploy.monitoring()
    assert deploy.DASHBOARD.read_text() == deploy.dashboard()


def test_a_server_takes_what_the_chart_makes_of_every_optional_part(apiserver):
    wanted = objects(deploy.MONITORING.read_text())
    optional = ("admissionPolicy", "podMonitor", "prometheusRule", "dashboard")
    rendered = render("serviceToken=true", *(f"{each}.enabled=true" for each in optional)).stdout
    found = objects(rendered)
    assert {key: found[key] for key in wanted} == wanted
    policy = objects((DEPLOY / "admission.yaml").read_text())
    assert {key: found[key] for key in policy} == policy
    kubeobjects.add_namespace(apiserver.admin, "kube-flannel")
    apiserver.kubectl("apply", "-f", str(Path(__file__).with_name("monitoring-crds.yaml")))
    try:
        for text in (rendered, deploy.MONITORING.read_text()):
            apply = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
            eventually(lambda text=text, apply=apply: _taken(apiserver, apply, text), seconds=20)
    finally:
        apiserver.kubectl("delete", "-f", str(Path(__file__).with_name("monitoring-crds.yaml")))


def _taken(server: ApiServer, command: tuple[str, ...], text: str) -> str:
    """What kubectl says; nothing while the server does not serve a new kind yet."""
    try:
        return server.kubectl(*command, stdin=text)
    except AssertionError as error:
        if "no matches for kind" in str(error) or "could not find the requested resource" in str(error):
            return ""
        raise


def test_the_chart_takes_over_what_the_manifest_or_another_release_has_made(apiserver):
    apiserver.kubectl("apply", "-f", str(MANIFEST))
    config = kubeobjects.write_kubeconfig(apiserver.folder / "helm.kubeconfig", apiserver.admin)

    def helm(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [programs() / "helm", f"--kubeconfig={config}", "--namespace=kube-flannel", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    install = ("install", "weft", str(CHART))
    assert "invalid ownership metadata" in helm(*install).stderr
    ran = helm(*install, "--take-ownership")
    assert ran.returncode == 0, ran.stderr
    assert "kubectl -n kube-flannel exec daemonset/kube-flannel-ds" in ran.stdout
    assert helm("install", "other", str(CHART)).returncode == 1
    ran = helm("install", "other", str(CHART), "--take-ownership")
    assert ran.returncode == 0, ran.stderr
    records = ("--namespace=kube-flannel", "delete", "secret", "--selector")
    apiserver.kubectl(*records, "owner=helm,name=weft")
    assert apiserver.kubectl("--namespace=kube-flannel", "get", "daemonset/kube-flannel-ds", "-o", "name")
    assert helm("uninstall", "other", "--no-hooks").returncode == 0  # there are no nodes


def test_a_manifest_over_the_other_leaves_nothing_of_it_in_the_daemon_set(apiserver):
    """What `kubectl apply` does not know it leaves: the plugins of the other would be installed again."""
    theirs = Path(__file__).parents[1] / "support" / "kubernetes" / "kube-flannel.yaml"

    def after(*manifests: Path) -> Any:
        for manifest in manifests:
            apiserver.kubectl("apply", "-f", str(manifest))
        named = ("daemonset/kube-flannel-ds", "--namespace=kube-flannel")
        spec = json.loads(apiserver.kubectl("get", *named, "-o", "json"))["spec"]
        apiserver.kubectl("delete", *named, "--wait=false")
        return spec

    assert after(theirs, MANIFEST) == after(MANIFEST)
    assert after(MANIFEST, theirs) == after(theirs)


def test_another_configuration_rolls_the_daemon_set_and_nothing_else_does():
    def checksum(*values: str) -> str:
        pods = objects(render(*values).stdout)["DaemonSet", "kube-flannel-ds"]["spec"]["template"]
        found: str = pods["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum("flannel.healthz.port=9000", "global.commonLabels.a=b") == checksum()
    others = {checksum(value) for value in ("podCidr=10.9.0.0/16", "flannel.cniConf=[]", "flannel.vni=7")}
    assert len(others | {checksum()}) == 4


def test_the_charts_own_tests_pass():
    program = helmunit.place()
    assert program.exists(), f"build it: {helmunit.HINT}"
    ran = subprocess.run([program, CHART], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


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


def test_options_of_every_back_end_become_its_configuration(tmp_path: Path):
    """What is built is accepted, and weftd takes what is made."""
    given = {
        "udp": ({"backendPort": 8286, "backendOptions": {"KernelPath": False}}, {"Port": 8286, "KernelPath": False}),
        "ipsec": ({"psk": "k" * 96, "backendOptions": {"UDPEncap": True}}, {"PSK": "k" * 96, "UDPEncap": True}),
        "extension": ({"backendOptions": {"SubnetAddCommand": "true"}}, {"SubnetAddCommand": "true"}),
        "ipip": ({"directRouting": True, "backendPort": 1}, {"DirectRouting": True}),
        "wireguard": ({"backendPort": 0}, {}),
        "vxlan": ({"backendPort": 0, "vni": 0, "backendOptions": {"Learning": True}}, {"VNI": 0, "Learning": True}),
        "host-gw": ({}, {}),
        "alloc": ({}, {}),
    }
    assert given.keys() == BACKENDS.keys() - {"mesh"}  # which is for nodes without Kubernetes
    for name, (values, wanted) in given.items():
        file = tmp_path / "values.yaml"
        file.write_text(json.dumps({"flannel": {"backend": name, **values}}))
        made = objects(render(files=[file]).stdout)["ConfigMap", "kube-flannel-cfg"]["data"]["net-conf.json"]
        assert made["Backend"] == {"Type": name, **wanted}
        assert parse_netconf(json.dumps(made), backends=BACKENDS).backend == name


def test_a_values_file_of_flannels_works_but_for_its_image(tmp_path: Path):
    """As `helm show values` prints it for 0.28.9, in JSON."""
    file = tmp_path / "values.yaml"
    image = {"repository": "ghcr.io/flannel-io/flannel", "tag": "v0.28.9"}
    flannel = {"image": image, "flannel_cni": {"image": {**image}}, "args": ["--ip-masq"], "cniBinDir": "/opt/cni/bin"}
    policies = {"enabled": False, "args": ["--v=2"], "image": {"repository": "registry.test/policies", "tag": "v1"}}
    file.write_text(json.dumps({"global": {"imagePullSecrets": None}, "flannel": flannel, "netpol": policies}))
    ran = render(files=[file], check=False)
    assert ran.returncode == 1
    assert "ghcr.io/flannel-io/flannel is flannel's image" in ran.stderr
    assert render("flannel.image.repository=registry.test/weft", "flannel.image.tag=v9", files=[file]).stdout


def distributions() -> list[tuple[str, ...]]:
    """Name, network and directories of each distribution, as the page of them says."""
    page = (DEPLOY.parent / "docs" / "howto" / "weft-on.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(#\w+\) \| (.+?) \| `(.+?)` \| `(.+?)` \|", page, re.MULTILINE)
    return [(name, *re.findall(r"[0-9./]{9,}", network), *folders) for name, network, *folders in rows]


@pytest.mark.parametrize("row", distributions(), ids=lambda row: row[0])
def test_the_chart_takes_the_settings_of_each_distribution(apiserver, row: tuple[str, ...]):
    _, *network, plugins, networks = row
    values = [f"podCidr={each}" for each in network]
    rendered = render(*values, f"flannel.cniBinDir={plugins}", f"flannel.cniConfDir={networks}").stdout
    kubeobjects.add_namespace(apiserver.admin, "kube-flannel")
    apiserver.kubectl("apply", "--dry-run=server", "-f", "-", stdin=rendered)
    found = objects(rendered)
    made = found["ConfigMap", "kube-flannel-cfg"]["data"]["net-conf.json"]
    assert made["Network"] == (network or ["10.244.0.0/16"])[0]
    assert parse_netconf(json.dumps(made), backends=BACKENDS).families == (4,)
    volumes = found["DaemonSet", "kube-flannel-ds"]["spec"]["template"]["spec"]["volumes"]
    paths = {each["name"]: each["hostPath"]["path"] for each in volumes if "hostPath" in each}
    assert (paths["cni-plugin"], paths["cni"]) == (plugins, networks)


def test_the_page_of_distributions_has_all_of_them():
    assert [row[0] for row in distributions()] == ["kubeadm", "kind", "k3s", "RKE2", "Talos", "MicroK8s"]


CIDRS = [
    ("podCidr", "10.244.0.0/16", True),
    ("podCidr", "300.1.2.3/16", False),
    ("podCidr", "10.244.0.0", False),
    ("podCidr", "10.244.0/16", False),
    ("podCidr", "10.244.0.0/33", False),
    ("podCidr", "2001:db8::/56", False),
    ("podCidrv6", "2001:db8::/56", True),
    ("podCidrv6", "::/0", True),
    ("podCidrv6", "1:2:3:4:5:6:7:8/128", True),
    ("podCidrv6", "fd00::1:2:3/64", True),
    ("podCidrv6", "2001:db8::/129", False),
    ("podCidrv6", "2001::db8::/56", False),
    ("podCidrv6", "1:2:3:4:5:6:7/64", False),
    ("podCidrv6", "10.244.0.0/16", False),
]


@pytest.mark.parametrize("name, network, good", CIDRS)
def test_a_network_that_is_none_is_refused_by_the_schema(name: str, network: str, good: bool):
    ran = render(f"{name}={network}", check=False)
    assert (ran.returncode == 0) == good, ran.stderr
    assert good or name in ran.stderr


@pytest.mark.parametrize(
    "value, words",
    [
        ("netpol.mode=off", "mode"),
        ("podCidr=", "expected the network of one family at least"),
        ("flannel.backend=tencent-vpc", "backend"),
        ("flannel.vni=-1", "vni"),
        ("flannel.bakend=vxlan", "bakend"),
    ],
)
def test_values_that_mean_nothing_are_refused(value: str, words: str):
    ran = render(value, check=False)
    assert ran.returncode == 1
    assert words in ran.stderr


@pytest.fixture(scope="module")
def policy(shared_apiserver) -> Iterator[None]:
    """The admission policy, once: the server takes and forgets one some time after it is told."""
    file = str(DEPLOY / "admission.yaml")
    shared_apiserver.kubectl("apply", "-f", file)
    yield
    shared_apiserver.kubectl("delete", "-f", file)


@pytest.fixture
def guarded(apiserver, policy: None) -> tuple[Api, Api]:
    """A cluster with the admission policy; the API as weft's pod on node `own`, and as its account without a pod."""
    api = apiserver.admin
    for name, subnet in (("own", "10.244.77.0/24"), ("other", "10.244.78.0/24")):
        kubeobjects.add_node(api, name, subnet, labels={"zone": "a"}, annotations={"theirs": "1", "others": "2"})
        api.patch(f"{NODES}/{name}/status", {"status": _status()})
    kubeobjects.add_namespace(api, "kube-flannel")
    kubeobjects.service_account(api, "kube-flannel", "flannel")
    pod = kubeobjects.add_pod(api, "kube-flannel", "weft-on-own", "own", account="flannel")
    kubeobjects.grant(api, "admission", kubeobjects.account("kube-flannel", "flannel"), RULES)
    bound = apiserver.api(kubeobjects.service_account(api, "kube-flannel", "flannel", pod=pod))
    free = apiserver.api(kubeobjects.service_account(api, "kube-flannel", "flannel"))
    eventually(
        lambda: "weft's token is of a pod on another" in _refused(bound, _annotating(PREFIX), "other"), seconds=20
    )
    return bound, free


def test_a_daemon_works_under_the_admission_policy(cluster: KubeCluster):
    server = cluster.server
    node = cluster.node(1).register()
    kubeobjects.add_namespace(server.admin, "kube-flannel")
    kubeobjects.service_account(server.admin, "kube-flannel", "flannel")
    kubeobjects.grant(server.admin, "admission", kubeobjects.account("kube-flannel", "flannel"), RULES)
    pod = kubeobjects.add_pod(server.admin, "kube-flannel", "weft-on-node1", "node1", account="flannel")
    node.token = kubeobjects.service_account(server.admin, "kube-flannel", "flannel", pod=pod)
    server.kubectl("apply", "-f", str(DEPLOY / "admission.yaml"))
    try:
        bound, tries = server.api(node.token), itertools.count()
        eventually(lambda: _refused(bound, _annotating("theirs", value=str(next(tries))), "node1"), seconds=20)
        cluster.configure()
        node.start()
        assert node.said["public-ip"]
        eventually(lambda: "NetworkUnavailable" in str(node.object["status"].get("conditions")), seconds=20)
        assert "API-001" not in node.log
    finally:
        server.kubectl("delete", "-f", str(DEPLOY / "admission.yaml"))


def _status() -> dict[str, Any]:
    """What a kubelet says of a node, as far as it matters; large as a real one's."""
    return {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "own"}],
        "capacity": {"cpu": "2", "pods": "110"},
        "images": [{"names": [f"registry.test/image{number}@sha256:{'a' * 64}"]} for number in range(50)],
        "conditions": [_condition("Ready", "True"), _condition("MemoryPressure", "False")],
    }


def _condition(kind: str, status: str, reason: str = "tried") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def _annotating(*names: str, value: str | None = "tried") -> dict[str, Any]:
    return {"metadata": {"annotations": {f"{name}x" if name == PREFIX else name: value for name in names}}}


def _refused(api: Api, change: dict[str, Any], node: str = "own") -> str:
    """Why a change of a node's status is refused; empty if it is not."""
    try:
        api.patch(f"{NODES}/{node}/status", change)
    except ApiError as error:
        if error.code != HTTPStatus.FORBIDDEN:
            raise
        return str(error)
    return ""


def test_the_admission_policy_lets_weft_publish_on_its_own_node_alone(apiserver, guarded: tuple[Api, Api]):
    bound, free = guarded
    own = f"{NODES}/own"
    kubeobjects.annotate(bound, "own", **kubeobjects.flannel("10.0.0.1"))
    kubeobjects.annotate(bound, "own", **{f"{PREFIX}backend-data": None})
    for status in ("True", "False"):  # made, then changed
        bound.patch(f"{own}/status", {"status": {"conditions": [_condition("NetworkUnavailable", status)]}})
    assert {each["type"] for each in bound.get(own)["status"]["conditions"]} >= {"Ready", "NetworkUnavailable"}
    assert "or of none" in _refused(free, _annotating(PREFIX))
    kubeobjects.annotate(apiserver.admin, "other", others="are not asked")


CHANGES: dict[str, dict[str, Any]] = {
    "an annotation of others": _annotating("theirs"),
    "an annotation that was not there": _annotating("new"),
    "an annotation of others taken away": _annotating("theirs", value=None),
    "an annotation that begins almost as ours": _annotating("flannel.alpha.coreos.computer/x"),
    "a label": {"metadata": {"labels": {"zone": "b"}}},
    "a new label": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
    "a label taken away": {"metadata": {"labels": {"zone": None}}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
    "InternalIP": {"status": {"addresses": [{"type": "InternalIP", "address": "6.6.6.6"}]}},
    "another address": {"status": {"addresses": [{"type": "ExternalIP", "address": "6.6.6.6"}]}},
    "the kubelet's port": {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 6666}}}},
    "capacity": {"status": {"capacity": {"pods": "1000"}}},
    "allocatable": {"status": {"allocatable": {"cpu": "100"}}},
    "images": {"status": {"images": [{"names": ["a"]}]}},
    "what the node is": {"status": {"nodeInfo": {"kubeletVersion": "v0"}}},
    "volumes": {"status": {"volumesInUse": ["a"]}},
    "Ready": {"status": {"conditions": [_condition("Ready", "False")]}},
    "a condition of its own": {"status": {"conditions": [_condition("Mine", "True")]}},
    "a condition taken away": {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}},
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_admission_policy_refuses_whatever_else_a_pod_of_weft_would_write(guarded: tuple[Api, Api], what: str):
    bound, _ = guarded
    before = bound.get(f"{NODES}/own")
    assert re.search("weft may( not)? change", _refused(bound, CHANGES[what]))
    both = {**_annotating(PREFIX), **CHANGES[what]}  # hidden in what is allowed
    both["metadata"] = {**_annotating(PREFIX)["metadata"], **CHANGES[what].get("metadata", {})}
    assert re.search("weft may( not)? change", _refused(bound, both))
    assert bound.get(f"{NODES}/own") == before


def test_taints_of_a_node_cannot_be_changed_by_its_status(guarded: tuple[Api, Api]):
    """The API itself passes over what a patch of the status says of the spec."""
    bound, _ = guarded
    before = bound.get(f"{NODES}/own")["spec"]
    bound.patch(f"{NODES}/own/status", {"spec": {"taints": [], "unschedulable": True}})
    assert bound.get(f"{NODES}/own")["spec"] == before


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
