"""Commands that several checks have for what they find. Pure: they are run elsewhere, and only for one who asks."""

from weft.diag.finding import Command


def setting(name: str, value: str, does: str) -> Command:
    """Set a setting named with slashes; the names of links in it may have dots."""
    return Command(("sysctl", "-w", f"{name if '.' in name else name.replace('/', '.')}={value}"), does)


def link_up(name: str) -> Command:
    """Set a link up."""
    return Command(("ip", "link", "set", name, "up"), f"sets {name} up")
