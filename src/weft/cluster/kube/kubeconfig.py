"""Finds how the API is reached: by --kubeconfig-file, whose server --kube-api-url replaces, else as a pod does.

Of a kubeconfig it takes the server, the CA and the user of its current context, as client-go does.

https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/. Relative paths are relative to the file's folder.
"""

from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from weft.beside import files
from weft.cluster.kube.access import Access, Pem, parse_url
from weft.cluster.kube.credentials import Credentials, ExecPlugin, Fixed, TokenFile
from weft.config.kubernetes import Surroundings
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_line
from weft.model.value import Secret, Value, field, replace

_T = TypeVar("_T")
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _Cluster(Value, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(Value):
    name: str
    value: str = ""


class _Exec(Value, rename="camel"):
    """A program that prints credentials (client.authentication.k8s.io)."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class _User(Value):
    certificate: str = field(name="client-certificate", default="")
    certificate_data: str = field(name="client-certificate-data", default="")
    key: str = field(name="client-key", default="")
    key_data: str = field(name="client-key-data", default="")
    token: str = ""
    token_file: str = field(name="tokenFile", default="")
    username: str = ""
    impersonated: str = field(name="as", default="")
    provider: dict[str, Any] | None = field(name="auth-provider", default=None)
    exec: _Exec | None = None


class _Context(Value):
    cluster: str = ""
    user: str = ""


class _Config(Value, rename="kebab"):
    current_context: str = ""
    clusters: list[dict[str, Any]] | None = None
    users: list[dict[str, Any]] | None = None
    contexts: list[dict[str, Any]] | None = None


def find(url: str, kubeconfig: str, *, around: Surroundings, account: Path = ACCOUNT) -> Access:
    if kubeconfig:
        access = load(Path(kubeconfig), around.environ)
        return replace(access, url=url) if url else access
    if url:
        parse_url(url)
        return Access(url=url)
    host, port = around.host, around.port
    if host and port:
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return Access(
            url=server,
            ca=Pem(file=str(account / "ca.crt"), where=str(account / "ca.crt")),
            credentials=TokenFile(account / "token"),
        )
    hint = "Give --kubeconfig-file, or --kube-api-url=URL; a pod of the cluster needs neither"
    seen = "this is no pod of a cluster (KUBERNETES_SERVICE_HOST and _PORT are not set), and no flag names the API"
    raise ConfigError(Problem(code="FLAG-001", where="--kube-subnet-mgr", seen=seen, hint=hint))


def load(path: Path, environ: Mapping[str, str]) -> Access:
    """What a kubeconfig says. Raises `ConfigError`, which names the file and the key.

    `environ` are the variables of programs that it has started.
    """
    import yaml  # late: it takes megabytes

    try:
        content = yaml.safe_load(files.read_now(path))
    except OSError as error:
        seen = f"cannot be read: {files.why(error)}"
        raise _wrong(path, seen, "a kubeconfig", "Correct --kubeconfig-file") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(path, f"not YAML: {one_line(str(error))}", "a kubeconfig") from None
    config = _read(path, content, _Config, "")
    context = _named(path, config.contexts, "context", config.current_context, _Context)
    cluster = _named(path, config.clusters, "cluster", context.cluster, _Cluster)
    user = _named(path, config.users, "user", context.user, _User) if context.user else _User()
    _refuse_what_is_not_built(path, cluster, user)
    if not cluster.server:
        raise _wrong(path, f"cluster {context.cluster!r} has no server", "https://HOST:PORT")
    return Access(
        url=cluster.server,
        ca=_pem(path, cluster.certificate_authority, cluster.certificate_authority_data, "certificate-authority"),
        certificate=_pem(path, user.certificate, user.certificate_data, "client-certificate"),
        key=_pem(path, user.key, user.key_data, "client-key"),
        server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        credentials=_credentials(path, user, environ),
    )


def _credentials(path: Path, user: _User, environ: Mapping[str, str]) -> Credentials:
    """A file counts more than a text beside it."""
    if user.token_file:
        return TokenFile(path.parent / user.token_file)
    if user.token:
        return Fixed(Secret(user.token))
    if user.exec is None:
        return Fixed()
    spec = user.exec
    command = str(path.parent / spec.command) if "/" in spec.command else spec.command
    return ExecPlugin(
        (command, *(spec.args or ())),
        {**environ, **{each.name: each.value for each in spec.env or ()}},
        version=spec.api_version,
        hint=spec.install_hint,
        where=f"{path}: user.exec",
    )


def _refuse_what_is_not_built(path: Path, cluster: _Cluster, user: _User) -> None:
    found = {
        "cluster.proxy-url": cluster.proxy_url,
        "user.username": user.username,
        "user.as": user.impersonated,
        "user.auth-provider": user.provider,
        "user.exec.provideClusterInfo": user.exec is not None and user.exec.provide_cluster_info,
        "user.exec.interactiveMode": user.exec is not None and user.exec.interactive_mode == "Always",
    }
    keys = [key for key, value in found.items() if value]
    if keys:
        hint = "Give weft a user of its own with a token, a client certificate or an exec plugin that asks nobody"
        raise _wrong(path, f"{', '.join(keys)}: not in this build", "a user and a cluster without", hint)


def _named(path: Path, entries: list[dict[str, Any]] | None, kind: str, name: str, type_: type[_T]) -> _T:
    for entry in entries or ():
        if entry.get("name") == name:
            return _read(path, entry.get(kind) or {}, type_, f"{kind} {name}")
    known = ", ".join(repr(str(entry.get("name"))) for entry in entries or ()) or "none"
    raise _wrong(path, f"no {kind} has the name {name!r}", f"one of {kind}s: {known}")


def _read(path: Path, content: Any, type_: type[_T], where: str) -> _T:
    try:
        return msgspec.convert(content, type_)
    except msgspec.ValidationError as error:
        raise _wrong(path, f"{where}: {error}".removeprefix(": "), "a kubeconfig") from None


def _pem(path: Path, file: str, data: str, key: str) -> Pem:
    """A file counts more than the text beside it."""
    if not data:
        return Pem(file=str(path.parent / file), where=f"{path}: {key}") if file else Pem()
    try:
        return Pem(data=b64decode(data, validate=True), where=f"{path}: {key}-data")
    except ValueError:
        raise _wrong(path, f"{key}-data is not base64 (not shown)", "PEM in base64") from None


def _wrong(path: Path, seen: str, expected: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(code="FLAG-001", where=str(path), seen=seen, expected=expected, hint=hint))
