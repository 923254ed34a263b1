"""Bytes and JSON to values and back. No I/O: `now` and chance are arguments."""
