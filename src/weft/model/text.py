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
