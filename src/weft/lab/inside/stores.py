"""Which store a lab has, and what makes its nodes ones of Kubernetes."""

import socket
from typing import TYPE_CHECKING

from weft.lab import spec
from weft.lab.inside.etcd import EtcdStore
from weft.lab.inside.processes import Processes
from weft.lab.inside.store import Store

if TYPE_CHECKING:
    from weft.lab.kubernetes.kubelets import Kubelets


def made(processes: Processes, lab: spec.Lab, outside: socket.socket | None) -> "tuple[Store, Kubelets | None]":
    """Return what holds the leases, and what makes nodes ones of Kubernetes, if they are to be."""
    if lab.store == "etcd":
        return EtcdStore(processes, lab), None
    # Late: they bring more than labs on etcd need.
    from weft.lab.kubernetes.kubelets import Kubelets
    from weft.lab.kubernetes.store import KubernetesStore

    store = KubernetesStore(processes, lab, outside)
    return store, Kubelets(processes, lab, store) if lab.kubelets else None
