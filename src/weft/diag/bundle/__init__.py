"""`weft bundle`: one node in one file, without its secrets, which the other commands read as if it were there."""
