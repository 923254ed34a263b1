"""The lease store on etcd v3 (flannel.md §4)."""
