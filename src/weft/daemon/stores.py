"""The stores that there are: the one module of the daemon that knows them by name."""

from collections.abc import Callable
from random import Random
from typing import Final

from weft.cluster.etcd import password
from weft.cluster.etcd.access import Access
from weft.cluster.etcd.store import EtcdStore
from weft.cluster.store import StoreKind
from weft.config.options import Options


def _etcd(options: Options, *, now: Callable[[], float], random: Callable[[int], bytes]) -> EtcdStore:
    file = options.etcd_password_file
    access = Access(
        endpoints=options.etcd_endpoints,
        ca_file=options.etcd_cafile,
        cert_file=options.etcd_certfile,
        key_file=options.etcd_keyfile,
        user=options.etcd_username,
        password=password.from_file(file) if file else options.etcd_password,
        password_file=file,
    )
    seed = int.from_bytes(random(8))
    return EtcdStore(access, options.etcd_prefix, now=now, chance=Random(seed))  # noqa: S311 - no secret


ETCD: Final = StoreKind(identity=lambda options: options.etcd_prefix, open=_etcd)
