"""`weft lab graph`: a picture of a lab."""

from collections.abc import Callable
from typing import Final

import click
import msgspec

from weft.lab import protocol
from weft.lab.commands.choose import ask, find, lab_option
from weft.lab.graph.picture import Picture, dot, mermaid, picture, tree
from weft.screen.documents import DOCUMENTS, show_report


def _svg(drawn: Picture) -> str:
    from weft.lab.graph import drawing  # late: it loads urllib.request, 15 ms for every command of a lab

    return drawing.svg(drawn)


_FORMS: Final[dict[str, Callable[[Picture], str]]] = {
    "text": tree,
    "mermaid": mermaid,
    "dot": dot,
    "svg": _svg,
}


@click.command("graph")
@lab_option
@click.option("-o", "--output", type=click.Choice([*_FORMS, *DOCUMENTS]), default="text", help="How to draw it.")
def graph(lab: str, output: str) -> None:
    """Draw a lab: the underlay, each node's uplink, devices and bridge, and the pods, with their addresses.

    \b
      weft lab graph
      weft lab graph -o svg >lab.svg          # for a browser, light or dark
      weft lab graph -o dot | dot -Tpng >lab.png
      weft lab graph -o mermaid               # for Markdown on GitHub and GitLab
    """
    drawn = picture(ask(find(lab), protocol.Ps()))
    show_report(output, msgspec.to_builtins(drawn), "" if output in DOCUMENTS else _FORMS[output](drawn))
