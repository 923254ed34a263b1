//go:build programs

// Helm, which renders the chart: `go mod tidy` keeps its modules for this.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
