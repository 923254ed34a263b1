"""Netlink, nft, setns and sysctl: what the machine is, and how it is changed. Decides nothing."""
