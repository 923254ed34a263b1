"""flannel: a delegate configured by subnet.env (flannel.md §10)."""
