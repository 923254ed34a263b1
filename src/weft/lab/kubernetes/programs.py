"""Kubernetes' own programs, which a lab takes from the directory that WEFT_KUBERNETES names, or from PATH."""

import shutil
from collections.abc import Iterable, Mapping
from typing import Final

from weft.model.errors import ConfigError, Problem

DIRECTORY: Final = "WEFT_KUBERNETES"
STORE: Final = ("kube-apiserver", "kube-controller-manager", "kubectl", "openssl")
NODES: Final = (*STORE, "kube-scheduler", "kubelet", "kube-proxy", "containerd", "ctr", "runc")
_PACKAGES: Final = {"openssl": "openssl", "containerd": "containerd", "ctr": "containerd", "runc": "runc"}


def find(name: str, environ: Mapping[str, str]) -> str:
    """Return the path of a program that `check` has found."""
    return shutil.which(name, path=environ["PATH"]) or name


def check(names: Iterable[str], environ: Mapping[str, str]) -> list[Problem]:
    """Say which of these programs are missing."""
    return [_missing(name) for name in names if shutil.which(name, path=environ["PATH"]) is None]


def path(environ: Mapping[str, str]) -> list[str]:
    """Return the directory to look in before PATH, if one is named. `ConfigError` if it is not absolute."""
    directory = environ.get(DIRECTORY, "")
    if directory and not directory.startswith("/"):
        raise ConfigError(Problem(code="LAB-001", where=DIRECTORY, seen=directory, expected="an absolute path"))
    return [directory] if directory else []


def _missing(name: str) -> Problem:
    hint = f"'apt-get install {_PACKAGES[name]}'." if name in _PACKAGES else ""
    hint = hint or f"scripts/kubernetes.sh builds Kubernetes' programs; {DIRECTORY} names the directory they are in."
    return Problem(code="HOST-002", where=name, seen="no such program on PATH", hint=hint)
