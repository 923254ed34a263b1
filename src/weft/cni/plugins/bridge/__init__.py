"""bridge: containers on a bridge of the host (cni.md §3)."""
