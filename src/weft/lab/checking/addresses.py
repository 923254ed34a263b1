"""Addresses of a lab's report by their families. Pure."""

from collections.abc import Sequence
from ipaddress import ip_interface

from weft.model.net import Family


def family_of(address: str) -> Family:
    """Return the family of an address, which may have a prefix length."""
    return 4 if ip_interface(address).version == 4 else 6


def by_family(addresses: Sequence[str]) -> dict[Family, str]:
    """Return the address of each family, without its prefix length."""
    return {family_of(address): address.partition("/")[0] for address in addresses}
