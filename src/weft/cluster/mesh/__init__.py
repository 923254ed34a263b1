"""The store that the nodes are themselves: what a peer keeps on disk, its links, and its leases (decision 0045)."""
