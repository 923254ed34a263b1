"""`weft cni` and `weft ipam`: what people type and see."""
