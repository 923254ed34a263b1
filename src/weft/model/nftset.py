"""An element of a set or map of nf_tables, as bytes, whatever it means."""

from weft.model.value import Value


class Element(Value):
    """`key` and `data` are the concatenated fields, each padded to four bytes; a set's element has no data.

    `comment` is what `nft list` shows: at most 128 bytes with its end, so 127 of text.
    """

    set: str
    key: bytes
    data: bytes = b""
    comment: str = ""


def field(value: bytes) -> bytes:
    """Pad one field of a concatenation to a whole number of registers."""
    return value + bytes(-len(value) % 4)
