"""Files that describe a lab: those of weft, read and written, and those of kind, read."""
