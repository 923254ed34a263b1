"""The planes of a node: each owns some kinds of objects, knows their state, and keeps them as wanted."""
