"""sbr: source-based routing (cni.md §6.5)."""
