"""Manual pages of `weft` and `weftd`, made from their help: `python -m scripts.manpages FOLDER`.

man(7): a line that begins with a dot or an apostrophe is a request, and a backslash begins an escape.
"""

import inspect
import re
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from scripts.docs.commands import commands
from weft import __version__, cli
from weft.config.flag import Flag
from weft.config.options import FLAGS

_FILES: Final = {
    "/etc/default/weft": "variables of the service weftd, one on a line: FLANNELD_ETCD_ENDPOINTS=http://10.0.0.5:2379",
    "/run/flannel/subnet.env": "this node's subnet and MTU, for plugins",
    "/run/weft": "the daemon's socket",
    "/var/lib/weft": "what the daemon keeps through restarts: keys, addresses of containers, what it saw last",
}


def pages() -> dict[str, str]:
    """Each page by the name of its file."""
    return {"weft.1": _weft(), "weftd.8": _weftd()}


def _weft() -> str:
    about, _, more = inspect.cleandoc(cli.weft.help or "").partition("\n\n")
    parts = [_head("weft", 1, about), ".SH SYNOPSIS\n.B weft\n.I COMMAND\n[\\fIOPTION\\fR]...\n.SH DESCRIPTION"]
    parts.append(_paragraphs(more))
    parts.append(".SH COMMANDS")
    parts += [
        _command(called, command) for called, command in commands() if not called.startswith(("weft lab", "weft ui"))
    ]
    parts.append(
        _section(
            "EXIT STATUS",
            {
                "0": "done, and all is well",
                "1": "it failed, or nothing answered",
                "2": "the command line, a file or a configuration is wrong",
            },
        )
    )
    return "\n".join([*parts, _section("FILES", _FILES), ".SH SEE ALSO\n.BR weftd (8)"]) + "\n"


def _weftd() -> str:
    parts = [_head("weftd", 8, "the node daemon of weft"), ".SH SYNOPSIS\n.B weftd\n[\\fIFLAG\\fR]...\n.SH DESCRIPTION"]
    parts.append(
        _paragraphs(
            "It takes a subnet for this node, programs devices, routes and rules, and keeps them so.\n\n"
            "-name and --name are the same. A value follows = or comes as the next argument; a boolean takes one only"
            " with =. Each flag can also come from a variable: --ip-masq from FLANNELD_IP_MASQ. A flag wins over its"
            " variable."
        )
    )
    for group, flags in groupby(FLAGS, key=lambda flag: flag.group):
        parts.append(_section(group.upper(), {_flag(flag): _meaning(flag) for flag in flags}))
    return "\n".join([*parts, _section("FILES", _FILES), ".SH SEE ALSO\n.BR weft (1)"]) + "\n"


def _head(name: str, section: int, about: str) -> str:
    return f'.TH {name} {section} "" "weft {__version__}"\n.SH NAME\n{name} \\- {_text(about.rstrip("."))}'


def _command(called: str, command: click.Command) -> str:
    context = click.Context(command, info_name=called)
    usage = " ".join(command.collect_usage_pieces(context))
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    options = "\n".join(_entry(*record) for record in records if record is not None)
    return (
        f".SS {_text(called)} {_text(usage)}\n{_paragraphs(inspect.cleandoc(command.help or ''))}\n{options}".rstrip()
    )


def _paragraphs(text: str) -> str:
    parts = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b\n"):
            parts.append(f".PP\n.nf\n{_text(inspect.cleandoc(paragraph[2:]))}\n.fi")
        else:
            parts.append(f".PP\n{_text(' '.join(paragraph.split()))}")
    return "\n".join(parts)


def _section(title: str, entries: dict[str, str]) -> str:
    return "\n".join([f".SH {_text(title)}", *(_entry(*entry) for entry in entries.items())])


def _entry(name: str, meaning: str) -> str:
    return f".TP\n.B {_text(name)}\n{_text(' '.join(meaning.split()))}"


def _flag(flag: Flag) -> str:
    return f"--{flag.name}={flag.value}" if flag.value else f"--{flag.name}"


def _meaning(flag: Flag) -> str:
    return flag.help + (f" (default {flag.default})" if flag.default else "")


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)


def main(arguments: Iterable[str]) -> None:
    [folder] = arguments
    for name, text in pages().items():
        Path(folder, name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
