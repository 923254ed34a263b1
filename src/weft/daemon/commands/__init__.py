"""The commands of a node: what the daemon tells of itself, and its own steps, shown or undone."""
