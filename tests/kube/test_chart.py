"""The Helm chart: it renders what the manifests say, the API takes it, and values that mean nothing are refused."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.docs import deploy
from tests.kube import helmunit
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ApiServer, programs
from tests.support.kubernetes.kubecluster import MANIFEST
from tests.support.kubernetes.kubeobjects import objects
from tests.support.weftd import eventually
from weft import __version__
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS

DEPLOY = MANIFEST.parent
CHART = DEPLOY / "chart"


def render(*values: str, files: Sequence[Path] = (), check: bool = True) -> "subprocess.CompletedProcess[str]":
    """What helm makes of the chart with `--set` of these values, over those of files."""
    sets = [*(f"--values={file}" for file in files), *(argument for value in values for argument in ("--set", value))]
    release = ("weft", str(CHART), "--namespace", "kube-flannel", "--kube-version", "1.34.4")
    command = [str(programs() / "helm"), "template", *release, *sets]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert not check or ran.returncode == 0, ran.stderr
    return ran


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
