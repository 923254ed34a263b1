"""What is done with captured packets: read, sorted, chosen, shown, and written to a file."""
