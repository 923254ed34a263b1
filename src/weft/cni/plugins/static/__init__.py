"""static: addresses that the configuration names."""
