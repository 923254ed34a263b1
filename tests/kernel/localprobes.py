"""Probes of a namespace to its own loopback address."""

from weft.diag.trace.probes import Kind, Probe


def local(kind: Kind, numbers: list[int], *, port: int = 0) -> Probe:
    return Probe(source="node", address="127.0.0.1", target="127.0.0.1", kind=kind, numbers=numbers, port=port)
