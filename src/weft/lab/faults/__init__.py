"""Faults that `weft lab break` makes, by what they hit."""
