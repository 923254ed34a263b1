"""What the kernel holds, as values: as it reports it, and as weft wants it."""
