"""`weft ui`: arguments in, a page out."""

import asyncio
import os
import secrets
import socket
import time
import webbrowser
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar, Final

import click
import uvicorn
from click.core import ParameterSource
from uvicorn.protocols.http.h11_impl import H11Protocol

from weft.daemon.disk.files import write_atomically
from weft.diag.sight.host import node_name
from weft.kernel import daemons
from weft.lab import places
from weft.lab.commands.choose import base, find, lab_option
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.net import with_port
from weft.screen.groups import INSTANCE, need_root
from weft.screen.say import say
from weft.ui import export as exporting
from weft.ui.app import STATIC, make
from weft.ui.sources import LabSource, NodeSource, Source
from weft.ui.watch import Watch

_PINGS: Final = 50  # of an export: some milliseconds each
_LAST_SECONDS: Final = 2  # that answers under way have at the end
_CONNECTIONS: Final = 64


class Connection(H11Protocol):
    """One too many ends the oldest idle one, as at the health port.

    So a client without a token that opens many takes neither our descriptors nor the owner's place.
    """

    _open: ClassVar[dict["Connection", None]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self._open) >= _CONNECTIONS:
            idle = (each for each in self._open if getattr(each.cycle, "response_complete", True))
            oldest = next(idle, next(iter(self._open)))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self, None)
        super().connection_lost(exc)


@click.command()
@lab_option
@INSTANCE
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to serve it.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes any free port.")
@click.option(
    "--no-browser",
    is_flag=True,
    help="Do not open a browser; without a screen, or with a token, none is opened anyway.",
)
@click.option(
    "--export",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page as it is now to a file that opens without a server, and end.",
)
def ui(lab: str, instance: str | None, listen: str, port: int, *, no_browser: bool, file: Path | None) -> None:
    """Serve a page that shows a lab, or what this node's daemon knows, until Ctrl-C.

    It shows the lab's nodes, pods and interfaces, how nodes reach each other, what happened, and the way of a packet
    between two pods. Without a lab, and with --instance, it shows this node and its peers.

    The page is served on this machine's loopback alone, to all its users. At another address a token is needed, which
    the printed URL contains; it travels in the clear, so trust the network, or use `ssh -L` instead.

    \b
      weft ui
      weft ui --port 8000 --no-browser
      weft ui --listen 192.0.2.1
      weft ui --export lab.html

    Exits 1 if there is nothing to show, 130 at Ctrl-C.
    """
    address = _address(listen)
    source = _source(lab, instance)
    if file is not None:
        if not file.absolute().parent.is_dir():
            seen, expected = "its directory does not exist", "a file in a directory that exists"
            raise ConfigError(Problem("FLAG-001", f"--export {file}", seen, expected=expected))
        at = time.strftime("%H:%M:%S", time.localtime(asyncio.run(_export(source, file))))
        say(f"wrote {file}, {'the lab' if isinstance(source, LabSource) else 'this node'} at {at}")
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family)
    except OSError as error:
        where, hint = f"{address} port {port}", "Without --port a free one is taken."
        seen = f"cannot be listened on: {os.strerror(error.errno or 0)}"
        raise Unavailable(Problem("HOST-002", where, seen, hint=hint)) from None
    with listener:
        token = "" if ip_address(address).is_loopback else secrets.token_urlsafe(24)
        url = f"http://{with_port(address, listener.getsockname()[1])}/{f'?token={token}' if token else ''}"
        click.echo(url)
        click.echo("Ctrl-C ends it", err=True)
        has_screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if has_screen and not no_browser and not token:  # all users see a browser's arguments
            webbrowser.open(url)
        asyncio.run(_serve(source, listener, token))


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        expected = "an IP address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
        raise ConfigError(Problem("FLAG-001", "--listen", text, expected=expected)) from None


def _source(lab: str, instance: str | None) -> Source:
    if instance is not None and click.get_current_context().get_parameter_source("lab") is ParameterSource.COMMANDLINE:
        seen = "--lab beside --instance"  # a current lab is no wish
        raise ConfigError(Problem("FLAG-001", "weft ui", seen, expected="a lab, or a node's daemon"))
    if instance is None and (lab or any(place.alive for place in places.found(base()))):
        return LabSource(find(lab))
    if instance is None and not daemons.living():
        hint = "'weft lab up' starts a lab, on any machine."
        raise Unavailable(Problem("LAB-002", "weft ui", "no lab is up, and no weftd runs here", hint=hint))
    need_root("weft ui")
    return NodeSource(daemons.choose(instance), node_name())


async def _serve(source: Source, listener: socket.socket, token: str) -> None:
    """Until Ctrl-C, which ends the pages' streams first. A log would hold the token, so none is written."""
    server: uvicorn.Server

    def ending() -> bool:
        return server.should_exit

    app = make(source, Watch(source, ending=ending), token=token)
    config = uvicorn.Config(
        app,
        http=Connection,
        backlog=_CONNECTIONS,  # of which asyncio accepts as many at once
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    server = uvicorn.Server(config)
    await server.serve(sockets=[listener])


async def _export(source: Source, file: Path) -> float:
    shown: dict[str, Any] = await Watch(source).once(pings=_PINGS)
    names = [piece["name"] for name, piece in shown["put"].items() if name.startswith(("node/", "pod/"))]
    links = {}
    for name in names:
        try:
            links[name] = await source.interfaces(name)
        except ConfigError:  # a peer of this node, which cannot be looked into from here
            continue
    texts = {path.name: path.read_text() for path in STATIC.iterdir()}
    write_atomically(file, exporting.page(texts, {**shown, "interfaces": links}).encode(), 0o644, sync=False)
    return float(shown["unix"])
