"""The machine as plugins see it: files below a root, sockets, settings, programs, locks. The only I/O of plugins."""
