"""Deciding: settings, cluster and machine in; the kernel state we want out. Pure."""
