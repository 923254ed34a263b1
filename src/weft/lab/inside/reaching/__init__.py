"""Packets sent between places of a lab to see whether they arrive, from sockets opened in namespaces."""
