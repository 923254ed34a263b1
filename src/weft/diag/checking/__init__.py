"""What became of a check's trials, and what the failed ones have in common: of a lab, or of one node. Pure."""
