"""Where a plane may keep what is to outlive it."""

from pathlib import Path

from weft.model.value import Value


class Place(Value):
    """The instance's directory, and which boot this is."""

    directory: Path
    boot: str
