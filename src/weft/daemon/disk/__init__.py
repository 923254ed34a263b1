"""What the daemon keeps on disk: whole files, what outlives it, and the locks of its directory."""
