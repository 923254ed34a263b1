"""Firewall rules and connections: by the host's programs, and by nfnetlink where that is faster."""
