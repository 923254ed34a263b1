"""How `weft lab trace` proves what it predicts: marked probes, counted at each device that they should pass."""
