"""strongSwan's charon: its process, and what weftd tells it."""
