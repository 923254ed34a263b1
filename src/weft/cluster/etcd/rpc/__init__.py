"""Generated from etcd.proto, which says how."""
