"""The daemon as a process: its log, its rights, its tasks, and what it tells systemd."""
