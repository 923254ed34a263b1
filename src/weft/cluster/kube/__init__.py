"""The store of leases in the nodes of Kubernetes."""
