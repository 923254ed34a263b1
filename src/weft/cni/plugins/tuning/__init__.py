"""tuning: settings of the container's namespace and of its interface (cni.md §6.4)."""
