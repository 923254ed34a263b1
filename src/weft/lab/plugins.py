"""The plugins of a lab's nodes: the programs that `weft cni install` puts on a real node."""

from pathlib import Path

from weft.cni import install as real


def install(directory: Path) -> None:
    """Put the plugins into `directory`."""
    real.install(directory)
