"""The programs of flannel's image beside the daemon, under their names: `install-conf` and `mk-docker-opts`.

Called wrongly they answer as upstream's: usage on standard error, exit status 1.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

import click

from weft.cni.install.files import lasting, put
from weft.model.errors import Problem, WeftError
from weft.wire import dockeropts

_PATH: Final = click.Path(path_type=Path)
_ROUTES: Final = Path("/proc/net/route")
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
    """
    with source.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        content = file.read()
    _put(destination, content, mode=mode)


def _usage(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click calls it so
    if wanted:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(_WRONG)


def _name(_: click.Context, __: click.Parameter, text: str) -> str:
    if not dockeropts.is_name(text):
        raise click.BadParameter(f"{text!r} is not the name of a variable")
    return text


@click.command("mk-docker-opts", cls=_Upstream, context_settings={"help_option_names": ["--help"]})
@click.option(
    "-f", "subnet_file", default="/run/flannel/subnet.env", type=_PATH, show_default=True, help="What weftd writes."
)
@click.option("-d", "docker_file", default="/run/docker_opts.env", type=_PATH, show_default=True, help="What to write.")
@click.option("-i", "individual", is_flag=True, help="Only a variable for each option, DOCKER_OPT_*.")
@click.option("-c", "combined", is_flag=True, help="Only the one variable that has all options.")
@click.option("-m", "no_ip_masq", is_flag=True, help="Leave out --ip-masq.")
@click.option(
    "-k", "key", default="DOCKER_OPTS", callback=_name, show_default=True, help="The variable of all options."
)
@click.option("-h", is_flag=True, is_eager=True, expose_value=False, callback=_usage, hidden=True)
def mk_docker_opts(
    subnet_file: Path, docker_file: Path, *, individual: bool, combined: bool, no_ip_masq: bool, key: str
) -> None:
    """Make a file of options for dockerd of this node's subnet.

    Its bridge gets the subnet and the MTU of the pod network, and it masquerades if the daemon does not. Where there
    is no subnet yet, there are no options. The image has this command as /opt/bin/mk-docker-opts.sh.

    \b
      weft mk-docker-opts -c -d /run/docker_opts.env
    """
    text = subnet_file.read_text(errors="surrogateescape") if subnet_file.is_file() else ""
    opts = dockeropts.read(text, str(subnet_file), os.environ, ip_masq=not no_ip_masq)
    both = individual == combined
    wanted = dockeropts.render(opts, key, individual=individual or both, combined=combined or both)
    content = wanted.encode(errors="surrogateescape")
    if docker_file.is_symlink() or (docker_file.exists() and not docker_file.is_file()):
        docker_file.write_bytes(content)  # a pipe or a device, as /dev/stdout: nothing may take its place
    else:
        mode = stat.S_IMODE(docker_file.stat().st_mode) if docker_file.exists() else 0o644
        _put(docker_file, content, mode=mode)
    if problem := dockeropts.in_the_way(opts, _ROUTES.read_text()):
        raise WeftError(problem)


def _put(path: Path, content: bytes, *, mode: int) -> None:
    try:
        if path.is_dir():  # which would make room
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with lasting(path.parent):
            put(path, content, mode=mode)
    except OSError as error:  # which names the temporary file
        seen = f"cannot be written: {error.strerror}"
        raise WeftError(Problem(code="HOST-002", where=str(path), seen=seen)) from error
