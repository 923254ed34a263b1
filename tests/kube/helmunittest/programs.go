//go:build programs

// helm-unittest, which tests the chart: `go mod tidy` keeps its modules for this.
package helmunittest

import _ "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
