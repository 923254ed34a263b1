"""weft: a pod network for Kubernetes and everything else that speaks CNI."""

__version__ = "0.1.0"
