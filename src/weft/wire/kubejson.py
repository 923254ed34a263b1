"""What is read of the Kubernetes API's objects, by the API's own names. Pure.

A Node takes 10 KB and more; the rest is skipped.
"""

from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field

_T = TypeVar("_T")


class NotTheApiError(Exception):
    """An answer that no Kubernetes API gives. The text is for people."""


class Meta(Struct):
    """`metadata` of any object."""

    name: str = ""
    uid: str = ""
    version: str = field(name="resourceVersion", default="")
    created: datetime | None = field(name="creationTimestamp", default=None)
    annotations: dict[str, str] | None = None


class Spec(Struct):
    """`spec` of a Node."""

    cidr: str = field(name="podCIDR", default="")
    cidrs: list[str] | None = field(name="podCIDRs", default=None)


class NodeObject(Struct):
    metadata: Meta
    spec: Spec = field(default_factory=Spec)


class ListMeta(Struct):
    version: str = field(name="resourceVersion", default="")
    rest: str = field(name="continue", default="")


class ListObject(Struct):
    """A page of a list of Nodes."""

    metadata: ListMeta
    items: list[NodeObject] | None = None


class NodeOrStatus(Struct):
    """A Node, or the Status of an error."""

    metadata: Meta = field(default_factory=Meta)
    spec: Spec = field(default_factory=Spec)
    code: int = 0
    reason: str = ""
    message: str = ""


class WatchEvent(Struct):
    type: str
    object: NodeOrStatus


class PodSpec(Struct):
    node: str = field(name="nodeName", default="")


class PodObject(Struct):
    spec: PodSpec = field(default_factory=PodSpec)


class CountMeta(Struct):
    """`metadata` of a list of which a part was asked for."""

    more: int = field(name="remainingItemCount", default=0)


class CountObject(Struct):
    metadata: CountMeta = field(default_factory=CountMeta)
    items: list[msgspec.Raw] | None = None


LIST: Final = msgspec.json.Decoder(ListObject)
COUNT: Final = msgspec.json.Decoder(CountObject)
NODE: Final = msgspec.json.Decoder(NodeObject)
EVENT: Final = msgspec.json.Decoder(WatchEvent)
POD: Final = msgspec.json.Decoder(PodObject)


def decode(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    """Raises `NotTheApiError`."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotTheApiError(str(error)) from None
