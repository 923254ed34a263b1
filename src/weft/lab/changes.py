"""What commands ask of a lab to change while it runs, beside what `protocol` has. The answers are in `report`."""

from typing import Literal

from weft.lab.links import Change
from weft.model.value import Value

Verb = Literal["start", "stop", "restart", "kill"]


class SetLinks(Value, kw_only=False, tag=True):
    """Change the links of some nodes, or with none of all. Answered by a `LinksReport`.

    A word of `nodes`, and of the requests below, may mean several: see `links.group`.
    """

    nodes: list[str]
    change: Change


class Partition(Value, kw_only=False, tag=True):
    """Cut each way from `source` to `target`, and unless `one_way` the way back. Answered by a `LinksReport`."""

    source: str
    target: str
    one_way: bool


class Heal(Value, kw_only=False, tag=True):
    """End the cuts between two groups of places, or with none all. Answered by a `LinksReport`."""

    places: list[str]


class Turn(Value, kw_only=False, tag=True):
    """Start, stop, restart or kill each of `things`, in this order. Answered by a `TurnReport`.

    A thing is a node, a node's daemon (`node1/weftd`) or the store (`store`).
    """

    verb: Verb
    things: list[str]


class Scale(Value, kw_only=False, tag=True):
    """Have so many nodes: new ones with `pods` each, or with as many as the first has. Answered by a `LabReport`."""

    nodes: int
    pods: int | None


class Configure(Value, kw_only=False, tag=True):
    """Put another network configuration into the store; `where` is its file. Answered by a `LabReport`.

    Daemons take it when they start again.
    """

    network: str
    where: str


class Broke(Value, kw_only=False, tag=True):
    """Have the lab's history say that a command breaks a node by a fault, or mends it. Answered by `Nothing`.

    The fault is a script that the command runs on the node; with `failed`, why it did not work.
    """

    node: str
    fault: str
    mend: bool
    failed: str = ""


Request = SetLinks | Partition | Heal | Turn | Scale | Configure | Broke
