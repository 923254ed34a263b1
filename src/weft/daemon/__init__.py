"""The node daemon: wiring, the loop, and what outlives it on disk."""
