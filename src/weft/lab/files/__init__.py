"""Files that describe a lab: those of weft, of kind and of containerlab, read and written."""
