"""The stores that there are, and which of them the flags ask for: the one module of the daemon that knows them by name.

Each is imported when it is opened: a daemon needs one, and the other's libraries take megabytes.
"""

import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from weft.cluster.store import Means, Store, StoreKind
from weft.config.options import Options
from weft.daemon.disk import files
from weft.kernel import portholders, statefiles

_MESH_FILE: Final = 64 << 20  # bytes: a ring of 65,536 blocks, each of another owner, is a fifth of that


def _etcd(options: Options, means: Means) -> Store:
    from weft.cluster.etcd.access import Access, password_in, tls_context
    from weft.cluster.etcd.store import open_etcd
    from weft.cluster.secretfile import SecretFile

    file = options.etcd_password_file
    access = Access(
        endpoints=options.etcd_endpoints,
        ca_file=options.etcd_cafile,
        cert_file=options.etcd_certfile,
        key_file=options.etcd_keyfile,
        user=options.etcd_username,
        password=SecretFile("--etcd-password-file", file, password_in) if file else options.etcd_password,
    )
    if access.tls_files:
        tls_context(access)  # for what it raises: at the start it is said which files cannot be used
    return open_etcd(access, options.etcd_prefix, now=means.now, chance=_chance(means))


def _kube(options: Options, means: Means) -> Store:
    from weft.cluster.kube.kubeconfig import find
    from weft.cluster.kube.store import open_kube

    around = options.surroundings
    return open_kube(
        find(options.kube_api_url, options.kubeconfig_file, around=around),
        around,
        prefix=options.kube_annotation_prefix,
        net_conf=Path(options.net_config_path),
        tells=options.set_node_network_unavailable,
        now=means.now,
        chance=_chance(means),
    )


def _mesh(options: Options, means: Means) -> Store:
    from weft.cluster.mesh.disk import FileAccess
    from weft.cluster.mesh.opening import open_mesh

    kept = FileAccess(
        read=partial(statefiles.read, limit=_MESH_FILE),
        write=partial(files.write_atomically, mode=0o600, sync=True),
        set_aside=statefiles.set_aside,
    )
    holder = partial(portholders.holder, protocol="tcp")
    return open_mesh(options, means, name=os.uname().nodename, kept=kept, holder=holder)


def _chance(means: Means) -> Random:
    return Random(int.from_bytes(means.random(8)))  # noqa: S311 - no secret


def _identity(options: Options) -> str:
    """Under another name it is another node."""
    if options.mesh:
        return "mesh"
    if options.kube_subnet_mgr:
        return options.kube_annotation_prefix + options.surroundings.node
    return options.etcd_prefix


def _open(options: Options, means: Means) -> Store:
    opener = _mesh if options.mesh else _kube if options.kube_subnet_mgr else _etcd
    return opener(options, means)


BY_FLAGS: Final = StoreKind(identity=_identity, open=_open)
