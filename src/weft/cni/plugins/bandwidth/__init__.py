"""bandwidth: limits at the host's end (cni.md §6.2)."""
