"""How requests reach plugins: the daemon's socket, its worker threads, and the way without a daemon."""
