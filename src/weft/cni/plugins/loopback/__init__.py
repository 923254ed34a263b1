"""loopback: `lo` of the container (cni.md §6.1)."""
