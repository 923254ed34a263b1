"""Pictures of a lab: `picture` says what is on them, the other modules draw it. Values in, text out."""
