//go:build programs

// The programs of containerd 1.7: `go mod tidy` keeps their modules for this.
package containerd1

import (
	_ "github.com/containerd/containerd/cmd/containerd"
	_ "github.com/containerd/containerd/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/cmd/ctr"
)
