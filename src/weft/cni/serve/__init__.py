"""How requests reach plugins: the daemon's socket, its worker threads, and what stands in for a daemon."""
