"""Services in a lab on etcd: the part of kube-proxy that a lab needs. `rules` decides, `serving` acts."""
