"""What a flag of the daemon is: its name, kind, default and help, and how its text is read."""

from collections.abc import Callable
from typing import Any, Literal, Self

from weft.model.value import Value, replace

Kind = Literal["bool", "int", "text", "list"]


class Flag(Value, kw_only=False):
    """One flag. `default` is written as a user would write it; `value` names the value in the help text.

    Whole numbers lie between `low` and `high`, both inclusive; Go's `int` has 64 bits. `read` turns a text into a
    value; its `ValueError` says what was expected. With `repeats` each value that is given is added to a list.
    `origin` says whose meaning the flag has. `later` names the part that a value other than the default needs
    and that this build does not have; such a value ends the start. `secret` values are never shown.
    `name` and `kind` come from the field of `Options` (`of_field`).
    """

    group: str
    help: str
    value: str = ""
    default: str = ""
    read: Callable[[str], Any] = str
    repeats: bool = False
    low: int = -(2**63)
    high: int = 2**63 - 1
    origin: Literal["flannel", "weft"] = "flannel"
    later: str = ""
    secret: bool = False
    name: str = ""
    kind: Kind = "text"

    @property
    def field(self) -> str:
        """The name of the field of `Options`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable that stands for the flag (flannel.md §1.3)."""
        return "FLANNELD_" + self.field.upper()

    def of_field(self, field: str, kind: type) -> Self:
        """The flag that the field of `Options`, of this type, has."""
        kinds: dict[type, Kind] = {bool: "bool", int: "int"}
        named = replace(self, kind="list" if self.repeats else kinds.get(kind, "text"))
        named = replace(named, default="false") if named.kind == "bool" and not named.default else named
        return named if named.name else replace(named, name=field.replace("_", "-"))
