"""host-local: addresses from ranges, remembered in files (cni.md §4)."""
