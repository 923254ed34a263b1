"""What a lab answers: its side of each command's connection."""
