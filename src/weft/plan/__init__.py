"""Planning: what we want, what is there, and the ordered steps from one to the other. Pure."""
