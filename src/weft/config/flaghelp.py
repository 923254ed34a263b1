"""The text of `weftd --help`, and the scripts by which shells complete weftd's flags."""

import textwrap
from itertools import groupby
from typing import Final

from weft.config.flag import Flag
from weft.config.options import FLAGS

_WIDTH: Final = 100
_HEAD: Final = """\
weftd: the node daemon of weft. It takes a subnet for this node, programs devices, routes and rules, and keeps them so.

Usage: weftd [flags]

Examples:
  weftd --etcd-endpoints=http://10.0.0.5:2379 --iface=eth1 --ip-masq
  weftd --etcd-endpoints=https://10.0.0.5:2379 --etcd-cafile=ca.pem --etcd-certfile=node.pem --etcd-keyfile=node.key
  weftd --etcd-username=weft --etcd-password-file=/etc/weft/password
  weftd --mesh --peer=10.0.0.5 --peer=10.0.0.6
  weftd --iface-can-reach=10.0.0.1 --healthz-port=8081
  FLANNELD_IFACE=eth1 weftd

-name and --name are the same. Values follow '=' or come as the next argument; booleans take theirs only with '='.
Every flag can also come from a variable: --ip-masq from FLANNELD_IP_MASQ. A flag wins over its variable.
"""


def help_text() -> str:
    """Everything a user needs to run the daemon, grouped as in the table of flags."""
    groups = [
        f"{title}:\n" + "\n".join(_entry(flag) for flag in flags)
        for title, flags in groupby(FLAGS, key=lambda flag: flag.group)
    ]
    return "\n\n".join((_HEAD.rstrip(), *groups)) + "\n"


def completion_of(shell: str) -> str:
    """Return a script for bash, zsh or fish that completes the flags of weftd."""
    flags = [flag for flag in FLAGS if not flag.later]
    words = " ".join(f"--{flag.name}" for flag in flags)
    if shell == "bash":
        return f"complete -o default -W '{words}' weftd"
    if shell == "zsh":
        return f"_weftd() {{ compadd -- {words} || _files; }}\ncompdef _weftd weftd"
    said = ((flag.name, flag.help.replace("\\", r"\\").replace("'", r"\'")) for flag in flags)
    return "\n".join(f"complete --command weftd --long-option {name} --description '{about}'" for name, about in said)


def _entry(flag: Flag) -> str:
    name = f"  --{flag.name}" + (f"={flag.value}" if flag.value else "")
    about = flag.help
    if flag.default and flag.default != "false":
        about += f" (default {flag.default})"
    if flag.later:
        about += " [not in this build]"
    text = textwrap.fill(about, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False)
    return f"{name}\n{text}"
