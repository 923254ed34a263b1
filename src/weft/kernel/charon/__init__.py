"""strongSwan's charon: its process, and what it is told."""
