"""`weft cni add …`: a network's plugins called by hand, with the variables and container ids of cnitool (cni.md §2.8).

What a call does is in `weft.cni.runtime.library`. Here stands what people say and see.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from weft.cni.commands import install
from weft.cni.commands.byhand import container_id, has_interface, may_be_alive, parse_args, parse_capability_args
from weft.cni.install.directories import Directories
from weft.cni.runtime import cache
from weft.cni.runtime.conf import load_all
from weft.cni.runtime.library import Cache, CniError, NetworkList, Programs, Ran, Runtime, RuntimeConf, Step, load
from weft.model.errors import ConfigError, Problem, WeftError
from weft.model.text import table
from weft.model.value import replace
from weft.screen.documents import complain_beside, output_option
from weft.screen.groups import Group, together

_NETNS: Final = Path("/run/netns")  # where `ip netns` has its names


@click.group(cls=Group)
def cni() -> None:
    """Call a network's plugins by hand, and put weft's plugins on a node.

    NETWORK is the name of a network in the configuration directory, NETNS the path of a network namespace.
    """


def _networks(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    directory = ctx.params.get("net_dir") or Directories.known(os.environ).conf_dir
    try:
        names = [found.name for _, found in load_all(directory) if isinstance(found, NetworkList)]
    except (CniError, OSError):  # there is no such directory
        return []
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _namespaces(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    paths = [str(path) for path in sorted(_NETNS.glob("*")) if str(path).startswith(incomplete)]
    return [CompletionItem(path) for path in paths] or [CompletionItem(incomplete, type="file")]


_network = together(
    click.option(
        "--net-dir",
        envvar="NETCONFPATH",
        default=lambda: Directories.known(os.environ).conf_dir,
        show_default=f"install's, or {Directories().conf_dir}",
        type=click.Path(path_type=Path),
        help="Where networks are configured (NETCONFPATH).",
    ),
    click.option(
        "--path",
        envvar="CNI_PATH",
        default=lambda: str(Directories.known(os.environ).bin_dir),
        show_default=f"install's, or {Directories().bin_dir}",
        metavar="DIR[:DIR…]",
        help="Where plugins are (CNI_PATH).",
    ),
    click.option(
        "--cache-dir",
        default=cache.DIRECTORY,
        show_default=True,
        type=click.Path(path_type=Path),
        help="Where attachments are remembered.",
    ),
    output_option,
)
_attachment = together(
    click.argument("network", shell_complete=_networks),
    click.argument("netns", shell_complete=_namespaces),
    click.option(
        "-i", "--ifname", envvar="CNI_IFNAME", default="eth0", show_default=True, help="The interface (CNI_IFNAME)."
    ),
    click.option("--args", envvar="CNI_ARGS", default="", metavar="K=V[;K=V…]", help="Arguments (CNI_ARGS)."),
    click.option("--cap-args", envvar="CAP_ARGS", default="", metavar="JSON", help="Capability arguments (CAP_ARGS)."),
    _network,
)


class _Site:
    def __init__(self, network: str, output: str, *, net_dir: Path, path: str, cache_dir: Path) -> None:
        self.programs = Programs(paths=path.split(":"), env=os.environ)
        self.began = False  # whether a plugin was started
        self.runtime = Runtime(run=self._run, cache=Cache(directory=cache_dir))
        self.name = network
        try:
            found = load(net_dir, network)
        except CniError as error:
            raise ConfigError(Problem(code="CONF-002", where=f"--net-dir {net_dir}", seen=str(error))) from error
        for line in found.broken:
            problem = Problem(code="CONF-002", where=f"--net-dir {net_dir}", seen=f"skipped {line}")
            complain_beside(output, [problem])
        self.network: NetworkList = found.network

    def _run(self, step: Step) -> Ran:
        ran = self.programs(step)
        self.began = True
        return ran

    @contextmanager
    def calling(self, hint: Callable[[], str] = str) -> Iterator[None]:
        try:
            yield
        except CniError as error:
            self.refuse(str(error), hint())

    def refuse(self, seen: str, hint: str = "") -> NoReturn:
        code = "CNI-001" if "failed to find plugin" in seen or "no paths provided" in seen else "CNI-003"
        hint = "Say where plugins are: --path or CNI_PATH." if code == "CNI-001" else hint
        raise WeftError(Problem(code=code, where=f"network {self.name}", seen=seen, hint=hint))


def _same(verb: str) -> str:
    context = click.get_current_context()
    words, arguments = ["weft", "cni", verb], []
    for parameter in context.command.params:
        value = str(context.params[parameter.name or ""])
        if isinstance(parameter, click.Argument):
            arguments.append(value)
        elif value != str(parameter.get_default(context)):
            words += [max(parameter.opts, key=len), value]
    words += ["--"] * any(argument.startswith("-") for argument in arguments)
    return shlex.join([*words, *arguments])


def _conf(netns: str, ifname: str, args: str, cap_args: str) -> RuntimeConf:
    return RuntimeConf(
        container_id=container_id(netns),
        netns=netns,
        ifname=ifname,
        args=parse_args(args),
        capability_args=parse_capability_args(cap_args),
    )


def _after_failed_add(site: _Site, netns: str, ifname: str, *, there: bool) -> str:
    """Say what to do, by what is known to be there: DEL would take an interface that was there before, too."""
    if there:
        return f"{netns} had its {ifname} before: `{_same('check')}` verifies it, --ifname names another interface."
    if not may_be_alive(netns):
        named = netns.startswith(f"{_NETNS}/")
        make = f": `{shlex.join(['ip', 'netns', 'add', netns.removeprefix(f'{_NETNS}/')])}` makes one" if named else ""
        return f"There is no network namespace at {netns}{make}."
    return f"`{_same('del')}` removes what was made." if site.began else ""


@cni.command()
@_attachment
def add(network: str, netns: str, *, ifname: str, args: str, cap_args: str, output: str, **where: Any) -> None:
    """Attach a network namespace to a network.

    Prints what was made. When a plugin of weft's fails, what weft's plugins before it have made is undone; all else
    stays until `weft cni del`, as with any runtime.

    \b
      ip netns add blue
      weft cni add cbr0 /run/netns/blue
      CAP_ARGS='{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}' \\
        weft cni add cbr0 /run/netns/blue
    """
    site = _Site(network, output, **where)
    there = has_interface(netns, ifname)
    with site.calling(lambda: _after_failed_add(site, netns, ifname, there=there)):
        outcome = site.runtime.add(site.network, _conf(netns, ifname, args, cap_args))
    result = outcome.result
    rows = [("interface", interface.name, interface.sandbox or "here") for interface in result.interfaces]
    rows += [("address", str(ip.address), f"via {ip.gateway}" if ip.gateway else "") for ip in result.ips]
    rows += [("route", str(route.dst), f"via {route.gw}" if route.gw else "") for route in result.routes]
    rows += [("nameserver", server, "") for server in result.dns.nameservers]
    install.report(output, outcome.obj, table(("MADE", "WHAT", "WHERE"), rows))


@cni.command("del")
@_attachment
def delete(network: str, netns: str, *, ifname: str, args: str, cap_args: str, output: str, **where: Any) -> None:
    """Detach a network namespace from a network.

    What is gone already is fine, the namespace included.

    \b
      weft cni del cbr0 /run/netns/blue
    """
    site = _Site(network, output, **where)
    with site.calling(lambda: "It may be repeated: nothing that is needed for it has been forgotten."):
        site.runtime.delete(site.network, _conf(netns, ifname, args, cap_args))
    install.report(output, {"deleted": {"netns": netns, "ifname": ifname}}, f"{ifname} of {netns} is off {network}")


@cni.command()
@_attachment
def check(network: str, netns: str, *, ifname: str, args: str, cap_args: str, output: str, **where: Any) -> None:
    """Verify that an attachment is as it was made.

    Exits 1 and says what is wrong if not.

    \b
      weft cni check cbr0 /run/netns/blue
    """
    site = _Site(network, output, **where)
    with site.calling():
        site.runtime.check(site.network, _conf(netns, ifname, args, cap_args))
    asked = not site.network.disable_check
    text = f"{ifname} of {netns} is as it was made" if asked else f"{network} has disableCheck: no plugin was asked"
    install.report(output, {"asked": asked, "netns": netns, "ifname": ifname}, text)


@cni.command()
@click.argument("network", shell_complete=_networks)
@click.argument("netns", default="", metavar="[NETNS]", shell_complete=_namespaces)
@click.option(
    "--all", "everything", is_flag=True, help="Take no attachment for alive: free everything, as 'cnitool gc' does."
)
@_network
def gc(network: str, netns: str, *, everything: bool, output: str, **where: Any) -> None:  # noqa: ARG001
    """Free what attachments that are gone have left.

    Alive is what the cache of attachments (--cache-dir; runtimes such as containerd keep theirs there too) has with a
    network namespace that exists. All else is detached and freed, so let no runtime start pods of this network
    meanwhile. NETNS is not needed; cnitool's callers give one.

    \b
      weft cni gc cbr0
      weft cni gc cbr0 --all
    """
    site = _Site(network, output, **where)
    known = site.runtime.cache.entries()
    if known.unreadable and not everything:
        site.refuse(
            f"cannot tell what is attached: {'; '.join(known.unreadable)}",
            "Nothing was freed. Remove the file if its container is gone, or free everything with --all.",
        )
    ours = [entry.conf for entry in known.entries if entry.network == network]
    alive = [conf for conf in ours if not everything and may_be_alive(conf.netns)]
    ended = [conf for conf in ours if conf not in alive]
    asked = not site.network.disable_gc
    for conf in ended if asked else ():
        # A path that leads to something else by now is refused by the reference's plugins; DEL may have none at all.
        if os.path.lexists(conf.netns) and not may_be_alive(conf.netns):
            with suppress(CniError):  # it is tried once more below, and told then
                site.runtime.delete(site.network, replace(conf, netns=""))
    with site.calling():
        site.runtime.collect_garbage(site.network, [(conf.container_id, conf.ifname) for conf in alive])
    rows = [("kept", conf.container_id, conf.ifname, conf.netns) for conf in alive]
    rows += [("ended", conf.container_id, conf.ifname, conf.netns) for conf in ended]
    names = ("state", "container", "ifname", "netns")
    report = {"asked": asked, "attachments": [dict(zip(names, row, strict=True)) for row in rows]}
    text = table(("STATE", "CONTAINER", "INTERFACE", "NETNS"), rows) if rows else "no attachment is known\n"
    if asked and not site.network.at_least("1.1.0"):
        text += f"{network} speaks {site.network.version or '0.1.0'}: its plugins were not asked, GC came with 1.1.0\n"
    install.report(output, report, text if asked else f"{network} has disableGC: nothing was done")


@cni.command()
@click.argument("network", shell_complete=_networks)
@click.argument("netns", default="", metavar="[NETNS]", shell_complete=_namespaces)
@_network
def status(network: str, netns: str, *, output: str, **where: Any) -> None:  # noqa: ARG001
    """Ask whether a network could attach a container.

    Exits 1 and says why if not. NETNS is not needed; cnitool's callers give one.

    \b
      weft cni status cbr0
    """
    site = _Site(network, output, **where)
    with site.calling():
        site.runtime.status(site.network)
    asked = site.network.at_least("1.1.0")
    version = site.network.version or "0.1.0"
    text = "is ready" if asked else f"speaks {version}: no plugin was asked, STATUS came with 1.1.0"
    install.report(output, {"asked": asked, "ready": True if asked else None}, f"{network} {text}")


@cni.command()
@click.argument("network", shell_complete=_networks)
@click.argument("netns", default="", metavar="[NETNS]", shell_complete=_namespaces)
@_network
def version(network: str, netns: str, *, output: str, **where: Any) -> None:  # noqa: ARG001
    """Ask each plugin which versions of CNI it speaks.

    Exits 1 if one lacks the network's.

    \b
      weft cni version cbr0
    """
    site = _Site(network, output, **where)
    wanted = site.network.version or "0.1.0"
    rows = []
    for plugin in site.network.plugins:
        with site.calling():
            spoken = site.runtime.versions(plugin.type)
            rows.append((plugin.type, site.programs.find(plugin.type), spoken))
    lacking = [name for name, _, spoken in rows if wanted not in spoken]
    data = {
        "cniVersion": wanted,
        "plugins": [{"type": name, "path": path, "supportedVersions": spoken} for name, path, spoken in rows],
    }
    text = table(("PLUGIN", "PATH", "VERSIONS"), ((name, path, ", ".join(spoken)) for name, path, spoken in rows))
    install.report(output, data, text)
    if lacking:
        site.refuse(f"{' and '.join(lacking)} does not speak {wanted}")


cni.add_command(install.install_command)
cni.add_command(install.uninstall_command)
cni.add_command(install.handback_command)
