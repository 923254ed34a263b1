"""`weft check`: what reaches what, tried; and what failures have in common, of one node or of a lab."""
