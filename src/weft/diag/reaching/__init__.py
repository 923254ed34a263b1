"""Packets sent from sockets in namespaces, to see whether they arrive and what the target saw of them."""
