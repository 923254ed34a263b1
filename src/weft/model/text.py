"""Text for people: on one line, without anything that a terminal obeys, and with the right number."""


def one_line(text: str) -> str:
    """`text` on one line: its lines joined by `; `, and what is not printable as Python escapes it."""
    if text.isprintable():
        return text
    lines = (line.strip(" \t\r") for line in text.split("\n"))
    joined = "; ".join(line for line in lines if line)
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in joined)


def counted(count: int, noun: str) -> str:
    """A number of things: `counted(1, "peer")` is `1 peer`, `counted(2, "peer")` is `2 peers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortly(seconds: float) -> str:
    """A time in the two largest units: `3 h 12 min`, `41 s`."""
    rest, parts = int(seconds), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
