"""Nouns: what the network is made of. No I/O, no clock, no files or formats."""
