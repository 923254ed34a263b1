"""`weft plan` and `weft cleanup`: the daemon's own steps, shown or undone."""
