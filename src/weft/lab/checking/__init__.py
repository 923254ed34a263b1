"""Which trials a check of a lab consists of. Pure."""
