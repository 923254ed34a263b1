"""Finding what leaked attachments hold, and freeing it, on proof only (settled.md §9)."""
