"""The runtime's side: networks, their plugins, and what is remembered of attachments (cni.md §2)."""
