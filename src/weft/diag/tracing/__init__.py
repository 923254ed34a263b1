"""A packet's way on a node, step by step, and how it reads. Pure."""
