"""What a lab's check decides: which trials there are, what came of each, and what failures have in common. Pure."""
