"""What runs as the lab: its supervisor, the nodes and pods in it, and the answers to commands."""
