"""Makes the mesh's store of what the flags say."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from weft.beside import files
from weft.cluster.mesh.commands import Operator
from weft.cluster.mesh.disk import Disk, FileAccess, boot_id, machine_print
from weft.cluster.mesh.links import TcpLinks
from weft.cluster.mesh.passwords import passwords_in
from weft.cluster.mesh.peer import Peer, Self
from weft.cluster.mesh.report import Report
from weft.cluster.mesh.store import MeshDirectory, MeshSettings, MeshTenure
from weft.cluster.mesh.use import had_a_pod
from weft.cluster.secretfile import SecretFile
from weft.cluster.store import Means, Store
from weft.config.blocks import layout_of
from weft.config.flagvalues import MESH_PORT
from weft.config.netconf import parse_netconf
from weft.config.options import Options
from weft.desired.backends import BACKENDS
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.records import MAX_NAME, Layout
from weft.model.value import Secret

_DEFAULT: Final = '{"Network": "10.32.0.0/12", "SubnetLen": 24, "Backend": {"Type": "mesh"}}'


def open_mesh(options: Options, means: Means, *, name: str, kept: FileAccess, holder: Callable[[int], str]) -> Store:
    """This node, called `name`, in the mesh of the flags.

    Reads the files of the flags. `holder` names the process that has a TCP port. Raises `ConfigError`.
    """
    file = options.password_file
    passwords = SecretFile("--password-file", file, passwords_in).now if file else _no_password
    layout = _layout(options.mesh_config)
    me = Self(
        name=_printable(name),
        peers=tuple(map(str, options.peer)),
        founding=layout if options.mesh_create else None,
        machine=machine_print(),
        boot=boot_id(),
        relays=options.mesh_relay,
    )
    refused: Counter[str] = Counter()
    links = partial(TcpLinks, passwords=passwords, port=MESH_PORT, random=means.random, holder=holder, refused=refused)
    disk = Disk(means.directory, kept)
    peer = Peer(me, disk, links, now=means.now, random=means.random, used=had_a_pod, history=means.history)
    report = Report(peer, refused)
    return Store(
        settings=MeshSettings(peer),
        tenure=MeshTenure(peer),
        directory=MeshDirectory(peer),
        tallies={},
        close=lambda: None,
        run=peer.run,
        paths=peer.paths,
        keys=disk.tunnel_keys,
        mesh=report,
        command=Operator(peer, report, layout, means.random).command,
    )


async def _no_password() -> tuple[Secret, ...]:
    return ()


def _printable(name: str) -> str:
    """What records may hold as a name."""
    return "".join(each if " " <= each <= "~" else "?" for each in name[:MAX_NAME]) or "?"


def _layout(path: str) -> Layout:
    """Of a ring that is made here. Raises `ConfigError`."""
    text, where = _DEFAULT, "the default network configuration"
    if path:
        where = f"--net-config-path: {path}"
        try:
            text = files.read_now(path).decode(errors="replace")
        except OSError as error:
            seen = f"cannot be read: {files.why(error)}"
            raise ConfigError(Problem(code="FLAG-001", where=where, seen=seen, expected="a readable file")) from None
    return layout_of(text, parse_netconf(text, where, backends=BACKENDS, mesh=True))
