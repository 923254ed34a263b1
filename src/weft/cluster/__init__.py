"""Lease stores: where leases live. Each feeds the daemon the events of `weft.model.cluster`."""
