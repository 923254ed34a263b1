"""What a node drops of the pod network, as it happens."""
