"""How a real API server is reached, and as whom: kubeconfigs, a pod's account, and what goes wrong."""

import json
import os
import socket
import time
import tracemalloc
from base64 import b64encode
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ADMIN, NOBODY
from tests.support.waiting import in_time
from weft.cluster.kube.client import Client
from weft.cluster.kube.kubeconfig import find
from weft.config.kubernetes import Surroundings
from weft.model.errors import ConfigError, Unavailable

READ_NODES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]


def _base64(file: str) -> str:
    return b64encode(Path(file).read_bytes()).decode()


async def asked(url="", kubeconfig="", **around):
    """The client's answer to a list of nodes, or the problem's text."""
    account = around.pop("account", None)
    more = {} if account is None else {"account": account}
    client = Client(find(url, str(kubeconfig), around=Surroundings(environ=dict(os.environ), **around), **more))
    with closing(client):
        try:
            return json.loads(await client.get("/api/v1/nodes", limit="1"))["kind"]
        except (Unavailable, ConfigError) as error:
            return str(error)


def plugin(folder: Path, *lines: str) -> str:
    """An exec plugin that prints a token; `lines` come first."""
    program = folder / "plugin"
    program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    program.chmod(0o755)
    return str(program)


def credential(token=ADMIN, version="v1", **status):
    body = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential"}
    return json.dumps({**body, "status": {"token": token, **status}})


@pytest.mark.spec("flannel.md §1.2/kubeconfig-file")
async def test_a_token_a_file_of_one_and_a_certificate(apiserver, tmp_path):
    admin = apiserver.admin
    assert await asked(kubeconfig=kubeobjects.write_kubeconfig(tmp_path / "token", admin)) == "NodeList"
    (tmp_path / "secret").write_text(f"{ADMIN}\n")
    config = kubeobjects.write_kubeconfig(tmp_path / "file", admin, tokenFile="secret", token="counts less")
    assert await asked(kubeconfig=config) == "NodeList"

    kubeobjects.grant(admin, "reader", kubeobjects.user("client"), READ_NODES)
    config = kubeobjects.write_kubeconfig(tmp_path / "certificate", apiserver.client)
    assert await asked(kubeconfig=config) == "NodeList"
    certificate, key = map(_base64, apiserver.client.certificate)
    fields = {"client-certificate-data": certificate, "client-key-data": key}
    assert await asked(kubeconfig=kubeobjects.write_kubeconfig(tmp_path / "data", admin, **fields)) == "NodeList"


@pytest.mark.spec("flannel.md §1.2/kube-api-url")
async def test_the_flag_replaces_the_kubeconfigs_server(apiserver, tmp_path):
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin)
    config.write_text(config.read_text().replace(apiserver.url, "https://192.0.2.1:6443"))
    assert await asked(apiserver.url, config) == "NodeList"


async def test_a_pods_account_whose_token_is_renewed(apiserver, tmp_path):
    account = kubeobjects.write_in_cluster(tmp_path, apiserver.api("expired"), "kube-flannel")
    host, port = apiserver.url.removeprefix("https://").split(":")
    client = Client(find("", "", around=Surroundings(host=host, port=port), account=account))
    with closing(client):
        with pytest.raises(Unavailable, match=r"STORE-002 .*does not know us"):
            await client.get("/api/v1/nodes", limit="1")
        (tmp_path / "new").write_text(ADMIN)
        (tmp_path / "new").rename(tmp_path / "token")
        assert b"NodeList" in await client.get("/api/v1/nodes", limit="1")  # not after the minute that a token is kept


async def test_a_watch_that_is_refused_has_the_token_be_read_again(apiserver, tmp_path):
    account = kubeobjects.write_in_cluster(tmp_path, apiserver.api("expired"), "kube-flannel")
    host, port = apiserver.url.removeprefix("https://").split(":")
    client = Client(find("", "", around=Surroundings(host=host, port=port), account=account))
    version = apiserver.admin.get("/api/v1/nodes", limit=1)["metadata"]["resourceVersion"]
    with closing(client):
        with pytest.raises(Unavailable, match=r"STORE-002 .*does not know us"):
            async with client.watch("/api/v1/nodes", lasts=1, resourceVersion=version):
                pass
        (account / "token").write_text(ADMIN)
        async with client.watch("/api/v1/nodes", lasts=1, resourceVersion=version):
            pass


async def test_files_that_go_while_the_daemon_runs_are_waited_for(apiserver, tmp_path):
    """Kubelet and people replace them, and a daemon that serves pods need not end for that."""
    account = kubeobjects.write_in_cluster(tmp_path, apiserver.admin, "kube-flannel")
    host, port = apiserver.url.removeprefix("https://").split(":")
    client = Client(find("", "", around=Surroundings(host=host, port=port), account=account))
    with closing(client):
        await client.get("/api/v1/nodes", limit="1")
        client.close()
        (account / "ca.crt").rename(account / "away")
        with pytest.raises(Unavailable, match=r"ca\.crt: No such file or directory"):
            await client.get("/api/v1/nodes", limit="1")
        (account / "away").rename(account / "ca.crt")
        assert b"NodeList" in await client.get("/api/v1/nodes", limit="1")
    missing = Client(find("", "", around=Surroundings(host=host, port=port), account=tmp_path / "none"))
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "token").write_text(ADMIN)
    with pytest.raises(ConfigError, match=r"ca\.crt: No such file or directory"):
        await missing.get("/api/v1/nodes", limit="1")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_program_that_gives_a_token(apiserver, tmp_path, version):
    """It is run once while its token is good, with the variables that it wants, and again once the API refuses that."""
    program = plugin(
        tmp_path,
        f'echo "$WHO $KUBERNETES_EXEC_INFO $1" >> {tmp_path}/calls',
        f"[ -e {tmp_path}/good ] && echo '{credential(version=version)}' || echo '{credential('bad', version)}'",
    )
    spec = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "command": program,
        "args": ["get;token"],
        "env": [{"name": "WHO", "value": "weft"}],
        "interactiveMode": "Never",
    }
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin, exec=spec)
    client = Client(find("", str(config), around=Surroundings(environ=dict(os.environ))))
    with closing(client):
        with pytest.raises(Unavailable, match="does not know us"):
            await client.get("/api/v1/nodes", limit="1")
        (tmp_path / "good").touch()
        for _ in range(3):
            assert b"NodeList" in await client.get("/api/v1/nodes", limit="1")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 3  # the first, anew for the first request, anew for the second
    who, info, argument = calls[0].split(" ", 1)[0], calls[0].split(" ", 1)[1].rsplit(" ", 1)[0], calls[0].split()[-1]
    assert (who, argument) == ("weft", "get;token")
    assert json.loads(info)["spec"] == {"interactive": False}


async def test_a_programs_token_that_expires_is_asked_for_again(apiserver, tmp_path):
    past = credential(expirationTimestamp="2020-01-01T00:00:00Z")
    program = plugin(tmp_path, f"echo >> {tmp_path}/calls", f"echo '{past}'")
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": program}
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin, exec=spec)
    client = Client(find("", str(config), around=Surroundings(environ=dict(os.environ))))
    with closing(client):
        for _ in range(3):
            await client.get("/api/v1/nodes", limit="1")
    assert len((tmp_path / "calls").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "lines, words",
    [
        (("echo no luck >&2; exit 3",), "ended with status 3: no luck"),
        (("echo secret",), "printed no ExecCredential (not shown)"),
        ((f"echo '{credential('')}'",), "printed no token"),
        ((f"echo '{credential(version='v1beta1')}'",), "printed an ExecCredential of client.authentication.k8s.io/v1b"),
        (
            (f"echo '{credential('', clientCertificateData='x')}'",),
            "printed a client certificate, which is not in this build",
        ),
    ],
)
async def test_a_program_that_fails_is_named_and_its_answer_is_not_shown(apiserver, tmp_path, lines, words):
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": plugin(tmp_path, *lines)}
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin, exec=spec)
    said = await asked(kubeconfig=config)
    assert words in said
    assert f"{config}: user.exec: {tmp_path}/plugin" in said
    assert "secret" not in said


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_program_that_prints_for_ever_is_ended_before_that_takes_memory(apiserver, tmp_path):
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": plugin(tmp_path, "exec cat /dev/zero")}
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin, exec=spec)
    tracemalloc.start()
    said = await asked(kubeconfig=config)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "prints more than 1048576 bytes" in said
    assert most < 16 << 20


async def test_a_program_that_leaves_a_process_with_its_output_is_not_waited_for_and_costs_no_descriptor(
    apiserver, tmp_path
):
    left = tmp_path / "left"
    past = credential(expirationTimestamp="2020-01-01T00:00:00Z")
    program = plugin(tmp_path, f"sleep 100 & echo $! >> {left}", f"echo '{past}'")
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": program}
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin, exec=spec)
    client = Client(find("", str(config), around=Surroundings(environ=dict(os.environ))))
    try:
        with closing(client):
            await client.get("/api/v1/nodes", limit="1")
            before = descriptors()
            for _ in range(5):
                await client.get("/api/v1/nodes", limit="1")
            assert descriptors() == before
    finally:
        for pid in left.read_text().split():
            os.kill(int(pid), 9)


async def test_a_program_that_is_not_there_is_said_with_the_kubeconfigs_hint(apiserver, tmp_path):
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "installHint": "Get it"}
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin, exec=spec)
    said = await asked(kubeconfig=config)
    assert "no-such-plugin: cannot be run: No such file or directory" in said
    assert said.endswith("Get it")


# --- What goes wrong on the way


def changed(config: Path, **cluster: object) -> Path:
    """The kubeconfig with other fields of its cluster, `_` for `-`."""
    content = json.loads(config.read_text())
    fields = content["clusters"][0]["cluster"]
    fields.update({key.replace("_", "-"): value for key, value in cluster.items()})
    config.write_text(json.dumps(content))
    return config


async def test_a_server_whose_certificate_is_not_trusted_or_for_another_name(apiserver, tmp_path):
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin)
    assert "Hostname mismatch" in await asked(kubeconfig=changed(config, tls_server_name="elsewhere.example"))
    assert await asked(kubeconfig=changed(config, tls_server_name="127.0.0.1")) == "NodeList"
    other = Path("/etc/ssl/certs/ca-certificates.crt")
    said = await asked(kubeconfig=changed(config, certificate_authority=str(other)))
    assert "STORE-002" in said
    assert "the server's certificate is not trusted" in said
    assert await asked(kubeconfig=changed(config, insecure_skip_tls_verify=True)) == "NodeList"


async def test_nobody_and_somebody_without_rights(apiserver, tmp_path):
    config = kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.admin, token="")
    assert "API-001" in await asked(kubeconfig=config)  # system:anonymous
    said = await asked(kubeconfig=kubeobjects.write_kubeconfig(tmp_path / "config", apiserver.api(NOBODY)))
    assert 'User "nobody" cannot list resource "nodes"' in said
    assert said.endswith('- {apiGroups: [""], resources: ["nodes"], verbs: ["list"]}')


async def test_what_is_no_api_server(apiserver):
    host = apiserver.url.removeprefix("https://")
    assert "Client sent an HTTP request to an HTTPS server" in await asked(f"http://{host}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        assert f"STORE-001 https://127.0.0.1:{port}: " in await asked(f"https://127.0.0.1:{port}")
        assert in_time(began, 30)
    assert "Connection refused" in await asked(f"https://127.0.0.1:{port}")
    assert "does not resolve" in await asked("https://no-such-host.invalid:6443")


def test_without_any_way_to_the_api_the_start_says_so():
    with pytest.raises(ConfigError, match=r"this is no pod of a cluster .*, and no flag names the API"):
        find("", "", around=Surroundings(host="10.96.0.1"))
