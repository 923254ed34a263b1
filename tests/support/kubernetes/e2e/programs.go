//go:build programs

// What the conformance run needs beside e2e_test.go: `go mod tidy` keeps their modules for this.
package e2e

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/images/agnhost"
	_ "k8s.io/kubernetes/test/images/regression-issue-74839"
)
