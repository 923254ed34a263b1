"""The kernel's IPsec policies, by netlink."""
