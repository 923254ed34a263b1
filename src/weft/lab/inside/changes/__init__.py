"""What changes a lab while it runs: its links, what is cut, what is stopped and started, how many nodes it has."""
