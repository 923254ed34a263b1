"""What a node says of itself: its state, what is wrong, what happened."""
