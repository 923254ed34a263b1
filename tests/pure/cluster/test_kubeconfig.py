"""What a kubeconfig leads to, and what is wrong with one, in words that name file, key and value."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from weft.cluster.kube.access import Access, Pem, parse_url
from weft.cluster.kube.kubeconfig import load
from weft.model.errors import ConfigError


def write(folder: Path, *, cluster: Any = None, user: Any = None, **changes: Any) -> Path:
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "clusters": [{"name": "other"}, {"name": "c", "cluster": {"server": "https://k:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
        **changes,
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    [problem] = raised.value.problems
    assert (problem.code, problem.where) == ("FLAG-001", str(path))
    return f"{problem.seen}; {problem.expected}"


def test_the_current_context_counts_and_paths_are_beside_the_file(tmp_path):
    access = load(write(tmp_path, cluster={"certificate-authority": "ca.crt", "tls-server-name": "k.example"}), {})
    assert access.url == "https://k:6443"
    assert access.ca.file == str(tmp_path / "ca.crt")
    assert access.server_name == "k.example"
    assert not access.insecure


def test_data_count_more_than_files(tmp_path):
    data = b64encode(b"pem").decode()
    fields = {"certificate-authority": "ca.crt", "certificate-authority-data": data}
    access = load(write(tmp_path, cluster=fields, user={"client-certificate-data": data, "client-key": "/k"}), {})
    assert access.ca.data == access.certificate.data == b"pem"
    assert access.key.file == "/k"
    assert not access.ca.file


def test_a_context_without_a_user_asks_as_nobody(tmp_path):
    contexts = [{"name": "x", "context": {"cluster": "c"}}]
    assert not load(write(tmp_path, contexts=contexts, users=None), {}).certificate


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"current-context": "y"}, "no context has the name 'y'; one of contexts: 'x'"),
        ({"contexts": None}, "no context has the name 'x'; one of contexts: none"),
        ({"clusters": []}, "no cluster has the name 'c'"),
        ({"users": []}, "no user has the name 'u'"),
        ({"clusters": [{"name": "c", "cluster": {"server": ""}}]}, "cluster 'c' has no server; https://HOST:PORT"),
        ({"clusters": 7}, "Expected `array | null`, got `int`"),
        ({"cluster": {"insecure-skip-tls-verify": "yes"}}, "cluster c: Expected `bool`, got `str`"),
        ({"cluster": {"certificate-authority-data": "!"}}, "certificate-authority-data is not base64 (not shown)"),
        ({"cluster": {"proxy-url": "http://p"}}, "cluster.proxy-url: not in this build"),
        (
            {"user": {"username": "a", "as": "b", "auth-provider": {"name": "gcp"}}},
            "user.username, user.as, user.auth-provider: not in this build",
        ),
        (
            {"user": {"exec": {"command": "p", "apiVersion": "v9", "provideClusterInfo": True}}},
            "user.exec.provideClusterInfo: not in this build",
        ),
        (
            {"user": {"exec": {"command": "p", "apiVersion": "v9", "interactiveMode": "Always"}}},
            "user.exec.interactiveMode: not in this build",
        ),
        ({"user": {"exec": {"command": "p"}}}, "user u: Object missing required field `apiVersion`"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, words):
    assert words in refusal(write(tmp_path, **changes))


def test_an_exec_plugin_of_an_unknown_version(tmp_path):
    path = write(tmp_path, user={"exec": {"command": "p", "apiVersion": "client.authentication.k8s.io/v1alpha1"}})
    with pytest.raises(ConfigError, match=r"user\.exec\.apiVersion: 'client\.authentication\.k8s\.io/v1alpha1'"):
        load(path, {})


@pytest.mark.parametrize(
    "text, words", [("a: [", "not YAML"), ("7", "Expected `object`, got `int`"), ("\x00", "not YAML")]
)
def test_a_file_that_is_none(tmp_path, text, words):
    path = tmp_path / "config"
    path.write_text(text)
    assert words in refusal(path)
    assert "cannot be read: No such file or directory" in refusal(tmp_path / "none")


@pytest.mark.parametrize(
    "url, host, port, tls",
    [
        ("https://k", "k", 443, True),
        ("https://k:6443/base/", "k", 6443, True),
        ("http://[fd00::1]:8080", "fd00::1", 8080, False),
        ("k:8080", "k", 8080, False),
    ],
)
def test_the_url_of_a_server(url, host, port, tls):
    endpoint = parse_url(url)
    assert (endpoint.host, endpoint.port, endpoint.tls) == (host, port, tls)


def test_what_stands_before_each_path():
    assert Access(url="https://k:6443/base/").base == "/base"
    assert Access(url="https://k:6443").base == ""


@pytest.mark.parametrize("url", ["ftp://k", "https://", "https://k:x", "https://user:hush@k", "https://k?x"])
def test_what_is_no_url_of_a_server(url):
    with pytest.raises(ConfigError, match="--kube-api-url") as raised:
        parse_url(url)
    assert "hush" not in str(raised.value)


def test_files_that_are_missing_or_no_pem_are_named(tmp_path):
    missing = Pem(file=str(tmp_path / "none"), where="config: certificate-authority")
    with pytest.raises(ConfigError, match="config: certificate-authority: No such file or directory"):
        Access(url="https://k", ca=missing).context()
    with pytest.raises(ConfigError, match="ca-data: not usable as PEM; expected CA certificates"):
        Access(url="https://k", ca=Pem(data=b"hush", where="ca-data")).context()
    pem = Pem(data=b"hush", where="client-certificate")
    with pytest.raises(ConfigError, match="client-certificate: not usable as PEM; expected a client certificate"):
        Access(url="https://k", certificate=pem, key=pem).context()
    assert Access(url="http://k", ca=missing).context() is None
