"""firewall: forwarding for a container, and its isolation (cni.md §6.3)."""
