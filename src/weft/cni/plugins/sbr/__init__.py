"""sbr: what a container sends from an interface's address leaves by that interface (cni.md §6.5)."""
