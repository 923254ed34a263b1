"""`weft ui`: a page that shows a lab, or what a node's daemon knows of its cluster. It changes nothing."""
