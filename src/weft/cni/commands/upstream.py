"""A program of flannel's image beside the daemon, under its name: `install-conf`.

It answers as upstream's when it is called wrongly: usage on standard error, exit status 1.
"""

import os
import stat
from pathlib import Path
from typing import Final

import click

from weft.cni.install.inventory import lasting, put
from weft.model.errors import Problem, WeftError

_PATH: Final = click.Path(path_type=Path)
_WRONG: Final = 1


class _Misused(click.UsageError):
    exit_code = _WRONG


class _Upstream(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            click.echo(self.get_help(ctx), err=True)
            raise _Misused(error.format_message(), ctx) from error


@click.command("install-conf", cls=_Upstream)
@click.argument("source", type=_PATH)
@click.argument("destination", type=_PATH)
def install_conf(source: Path, destination: Path) -> None:
    """Copy a file, such as a network's configuration, so that it is there whole or not at all.

    DESTINATION gets the mode of SOURCE. The image has this command as /opt/bin/install-conf.

    \b
      weft install-conf /etc/kube-flannel/cni-conf.json /etc/cni/net.d/10-flannel.conflist
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    with source.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        content = file.read()
    _put(destination, content, mode=mode)


def _put(path: Path, content: bytes, *, mode: int) -> None:
    try:
        with lasting(path.parent):
            put(path, content, mode=mode)
    except OSError as error:  # which names the temporary file
        seen = f"cannot be written: {error.strerror}"
        raise WeftError(Problem(code="HOST-002", where=str(path), seen=seen)) from error
