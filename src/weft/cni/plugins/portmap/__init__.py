"""portmap: ports of the host that lead to containers (cni.md §5)."""
