//go:build programs

// The program of CRI-O: `go mod tidy` keeps its modules for this.
package crio

import (
	_ "github.com/cri-o/cri-o/cmd/crio"
)
