"""Whose a rule or an element of nf_tables is: its comment says so, as in upstream's masquerade rules."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from weft.model.attachment import Attachment

_HASH_HEX: Final = 16
_LONGEST_COMMENT: Final = 128


def comment_of(attachment: Attachment) -> str:
    whole = f"{owner_of(attachment)}, net: {attachment.network}, if: {attachment.ifname}, id: {attachment.container_id}"
    return whole.replace('"', "").encode("utf-8", "replace")[:_LONGEST_COMMENT].decode("utf-8", "ignore")


def owner_of(attachment: Attachment) -> str:
    """Return how the comment begins, which identifies the attachment."""
    return _network(attachment.network) + _hash(f"{attachment.ifname}:{attachment.container_id}")


def lost(network: str, valid: Iterable[tuple[str, str]]) -> Callable[[str], bool]:
    """Return what tells whether a comment is of the network and of no valid container id and interface."""
    ours = _network(network)
    owners = tuple(owner_of(Attachment(network=network, container_id=id_, ifname=ifname)) for id_, ifname in valid)
    return lambda comment: comment.startswith(ours) and not comment.startswith(owners)


def digest(text: str) -> str:
    return hashlib.sha512(text.encode("utf-8", "surrogateescape")).hexdigest()


def _network(network: str) -> str:
    return f"{_hash(network)}-"


def _hash(text: str) -> str:
    return digest(text)[:_HASH_HEX]
