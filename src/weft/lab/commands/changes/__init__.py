"""Commands that change a lab while it runs: its links, what runs in it, how many nodes it has."""
