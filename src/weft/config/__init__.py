"""Settings: flags, environment and net-conf, read once into values, with messages that help."""
