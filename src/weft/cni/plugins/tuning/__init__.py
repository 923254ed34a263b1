"""tuning: settings of a container and its interface (cni.md §6.4)."""
