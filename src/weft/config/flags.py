"""Reads flags and `FLANNELD_*` variables into `Options` (flannel.md §1.1–1.3), with all mistakes at once.

A flag wins over its variable; an empty variable counts as absent.
"""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final
from urllib.parse import urlsplit

from weft.config.flag import Flag
from weft.config.flagvalues import ip_or_none
from weft.config.goflags import Given, did_you_mean, parse_bool, parse_int, tokens
from weft.config.kubernetes import Surroundings, surroundings
from weft.config.options import BY_NAME, FLAGS, Options
from weft.config.re2 import Pattern
from weft.model.errors import ConfigError, Problem
from weft.model.value import replace

_PREFIX: Final = "FLANNELD_"
_KUBERNETES_ONLY: Final = ("kube-api-url", "kubeconfig-file", "kube-annotation-prefix")
_MESH_ONLY: Final = ("peer", "password-file", "mesh-create", "mesh-relay")


def parse_flags(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """`argv` is without the program's name. Raises `ConfigError` with every problem.

    `--help` wins over everything, `--version` over everything but a command line that cannot be read.
    """
    line = tokens(argv)
    if line.wants_help:
        return _options(_values((), []), wants_help=True)
    problems = list(line.problems)
    if not problems and _asks_version(line.given):
        return _options(_values((), []), wants_version=True)
    from_environment, warnings = _environment(environ, {given.flag.name for given in line.given})
    given = (*line.given, *from_environment)
    values = _values(given, problems)
    where = {each.flag.name: each.where for each in given}
    problems += _not_in_this_build(values, where)
    problems += _contradictions(values, where)
    around = surroundings(environ, problems, warnings) if values["kube_subnet_mgr"] else Surroundings()
    if problems:
        raise ConfigError(*problems)
    warnings += _warnings(values, where)
    options = _options(values, warnings=tuple(warnings))
    # A mesh is never made of the default of Kubernetes, which may lie there from before.
    mesh_config = values["net_config_path"] if values["mesh"] and "net-config-path" in where else ""
    return replace(
        options,
        surroundings=around,
        wireguard_key_file=environ.get("WIREGUARD_KEY_FILE", ""),
        mesh_config=mesh_config,
    )


def changed(options: Options) -> list[str]:
    """What differs from the defaults, as `name=value`, for the log; secrets are not shown."""
    defaults = _options(_values((), []))
    values = ((flag, getattr(options, flag.field)) for flag in FLAGS)
    return [
        f"{flag.name}={'(not shown)' if flag.secret else quote(_text(value))}"
        for flag, value in values
        if value != getattr(defaults, flag.field)
    ]


def _text(value: Any) -> str:
    """As a user might write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return value.pattern if isinstance(value, Pattern) else str(value)


def _options(
    values: Mapping[str, Any],
    *,
    wants_help: bool = False,
    wants_version: bool = False,
    warnings: tuple[str, ...] = (),
) -> Options:
    endpoints = _with_scheme(values["etcd_endpoints"], "https" if values["etcd_certfile"] else "http")
    changed = {"help": wants_help, "version": wants_version, "warnings": warnings, "etcd_endpoints": endpoints}
    return Options(**{**values, **changed})


def _asks_version(given: Sequence[Given]) -> bool:
    last = [each.text for each in given if each.flag.name == "version"][-1:]
    try:
        return bool(last) and parse_bool(last[0])
    except ValueError:
        return False  # `_values` reports it


def _environment(environ: Mapping[str, str], on_line: set[str]) -> tuple[list[Given], list[str]]:
    """The variables of flags that the command line does not give, and warnings of unknown ones."""
    known = {flag.variable.removeprefix(_PREFIX): flag for flag in FLAGS}
    given: list[Given] = []
    warnings: list[str] = []
    for name in sorted(name for name in environ if name.startswith(_PREFIX)):
        bare = name.removeprefix(_PREFIX)
        flag = known.get(bare)
        if flag is None:
            hint = did_you_mean(bare, known, prefix=_PREFIX)
            warnings.append(f"{name} is the variable of no flag and is ignored. {hint}".rstrip())
        elif flag.name == "version":
            warnings.append(f"{name} has no effect; give --version")
        elif environ[name] and flag.name not in on_line:
            given.append(Given(flag=flag, text=environ[name], where=name))
    return given, warnings


def _values(given: Sequence[Given], problems: list[Problem]) -> dict[str, Any]:
    """Everything that was given, over the defaults: a value for each flag."""
    values: dict[str, Any] = {flag.field: () if flag.kind == "list" else _convert(flag, flag.default) for flag in FLAGS}
    for each in given:
        flag = each.flag
        try:
            value = _convert(flag, each.text)
        except ValueError as error:
            # The value of --etcd-password is never wrong; a URL may hold a password before its '@'.
            seen = "a value (not shown)" if "@" in each.text else repr(each.text)
            problems.append(Problem(code="FLAG-001", where=each.where, seen=seen, expected=str(error)))
        else:
            values[flag.field] = (*values[flag.field], value) if flag.kind == "list" else value
    return values


def _convert(flag: Flag, text: str) -> Any:
    """`ValueError` says what was expected."""
    if flag.kind == "bool":
        return parse_bool(text)
    if flag.kind == "int":
        return parse_int(text, low=flag.low, high=flag.high)
    return flag.read(text)


def _with_scheme(endpoints: tuple[str, ...], scheme: str) -> tuple[str, ...]:
    """As etcd's own client reads `host:port`: TLS exactly if there is a certificate."""
    return tuple(each if "://" in each else f"{scheme}://{each}" for each in endpoints)


def _not_in_this_build(values: Mapping[str, Any], where: Mapping[str, str]) -> list[Problem]:
    """Refuse values that need a part that is not there."""
    return [
        Problem(
            code="FLAG-001",
            where=where[flag.name],
            seen="not in this build",
            expected=f"--{flag.name}={flag.default}" if flag.default else f"no {where[flag.name]}",
            hint=f"It needs {flag.later}.",
        )
        for flag in FLAGS
        if flag.later and flag.name in where and values[flag.field] != _convert(flag, flag.default)
    ]


def _contradictions(values: Mapping[str, Any], where: Mapping[str, str]) -> list[Problem]:
    """Flags that make sense alone and not together."""
    problems: list[Problem] = []

    def problem(name: str, seen: str, hint: str) -> None:
        problems.append(Problem(code="FLAG-001", where=where[name], seen=seen, hint=hint))

    user, password, password_file, cert, key = (
        bool(values[name])
        for name in ("etcd_username", "etcd_password", "etcd_password_file", "etcd_certfile", "etcd_keyfile")
    )
    if password and password_file:
        problem("etcd-password", "given together with --etcd-password-file", "Give the file alone.")
    if user and not (password or password_file):
        problem("etcd-username", "given without a password", "Add --etcd-password-file=FILE.")
    if password and not user:
        problem("etcd-password", "given without a user", "Add --etcd-username=NAME.")
    if password_file and not user:
        problem("etcd-password-file", "given without a user", "Add --etcd-username=NAME.")
    if cert and not key:
        problem("etcd-certfile", "given without its private key", "Add --etcd-keyfile=FILE.")
    if key and not cert:
        problem("etcd-keyfile", "given without its certificate", "Add --etcd-certfile=FILE.")
    for name, seen, hint in (*_beside_mesh(values, where), *_policies(values)):
        problem(name, seen, hint)
    return problems


def _beside_mesh(values: Mapping[str, Any], where: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """A flag each, what is wrong with it, and what to do."""
    if not values["mesh"]:
        flags = [BY_NAME[name] for name in _MESH_ONLY]
        without = [flag.name for flag in flags if bool(values[flag.field]) != (flag.default == "true")]
        return [(name, "given without --mesh", "Add --mesh.") for name in without]
    others = [name for name in where if name.startswith("etcd-")]
    if values["kube_subnet_mgr"]:
        others.append("kube-subnet-mgr")
    return [(name, "given together with --mesh", "Give one store: mesh, etcd or Kubernetes.") for name in others]


def _policies(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """As `_beside_mesh`."""
    on, files = values["network_policy"] != "off", values["network_policy_files"]
    if files and not on:
        return [("network-policy-files", "given without --network-policy", "Add --network-policy=enforce, or audit.")]
    if values["kube_subnet_mgr"]:
        hint = "Leave it out: policies are read from the Kubernetes API."
        return [("network-policy-files", "given together with --kube-subnet-mgr", hint)] if files else []
    if on and not files:
        return [("network-policy", "given without policies", "Add --network-policy-files=PATH.")]
    return []


def _warnings(values: Mapping[str, Any], where: Mapping[str, str]) -> list[str]:
    warnings: list[str] = []
    if where.get("etcd-password") == "--etcd-password" and values["etcd_password"] is not None:
        warnings.append(
            "--etcd-password shows the password to every user of this machine; "
            "put it into a file of mode 0600 and give --etcd-password-file"
        )
    prefix = values["etcd_prefix"]
    if not prefix.startswith("/"):
        warnings.append(
            f"{where['etcd-prefix']}: {prefix!r} does not begin with '/', and so neither do the keys, as flanneld has "
            f"it: {f'{prefix}/config'.lstrip('/')!r} is read, which is not '/{prefix}/config'"
        )
    tls_files = [name for name in ("etcd-cafile", "etcd-certfile") if values[BY_NAME[name].field]]
    scheme = "https" if values["etcd_certfile"] else "http"
    plain = [each for each in _with_scheme(values["etcd_endpoints"], scheme) if each.startswith("http://")]
    if tls_files and plain:
        warnings.append(f"--{tls_files[0]} has no effect on {', '.join(plain)}: an http:// endpoint never uses TLS")
    secret = next((name for name in ("etcd-password", "etcd-password-file") if values[BY_NAME[name].field]), "")
    if secret and (far := [each for each in plain if not _is_here(each)]):
        warnings.append(
            f"{where[secret]}: the password goes over http:// to {', '.join(far)}, where the network can read it; "
            "have etcd serve https:// and give --etcd-cafile"
        )
    if values["network_policy"] != "off" and not values["ip_masq"]:
        warnings.append(
            f"{where['network-policy']}: without --ip-masq plugins hide pods' addresses from other nodes, so policies "
            "that name pods of other nodes allow nothing from them"
        )
    return [*warnings, *_without_effect(values, where)]


def _is_here(endpoint: str) -> bool:
    """Tell whether no network leads there."""
    host = urlsplit(endpoint).hostname or ""
    address = ip_or_none(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _without_effect(values: Mapping[str, Any], where: Mapping[str, str]) -> list[str]:
    """Which flags belong to another store."""
    mesh, kube = values["mesh"], values["kube_subnet_mgr"]
    etcd = [] if mesh else [flag.name for flag in FLAGS if flag.name.startswith("etcd-")]
    without = {
        "with --kube-subnet-mgr leases are not in etcd": etcd if kube else (),
        "it needs --kube-subnet-mgr": () if kube else _KUBERNETES_ONLY,
        "it needs --kube-subnet-mgr or --mesh": () if kube or mesh else ("net-config-path",),
        "in a mesh leases do not end": ("subnet-lease-renew-margin",) if mesh else (),
    }
    return [f"{where[name]} has no effect: {why}" for why, names in without.items() for name in names if name in where]
