//go:build programs

// What runs beside main.go: `go mod tidy` keeps its module for this.
package main

import _ "github.com/mattfenwick/cyclonus/cmd/worker"
