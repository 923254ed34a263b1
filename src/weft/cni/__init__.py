"""CNI: the plugins, and the way requests come to them (a thin client, the daemon, or in this process)."""
