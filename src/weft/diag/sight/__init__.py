"""One sight of a node: the value that all of diagnosis judges by, and what assembles it."""
