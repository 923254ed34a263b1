"""A bundle: one node in one file, without its secrets, which every verb of diagnosis reads as if it were there."""
