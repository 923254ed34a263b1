"""Labs with Kubernetes: its API as the store, and on request nodes that a kubelet runs."""
