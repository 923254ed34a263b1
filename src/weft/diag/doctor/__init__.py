"""`weft doctor`: checks of a sight, what they find in words, and what mends it."""
