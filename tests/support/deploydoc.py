"""What in deploy/ is made from something else there, so that each file can be fetched and used by itself.

`python -m tests.support.deploydoc` writes it: copies for kustomize and the chart, the
objects of Prometheus' operator, and the README of the chart's values.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_CHART: Final = DEPLOY / "chart"
README: Final = _CHART / "README.md"
MONITORING: Final = DEPLOY / "monitoring.yaml"
# Neither kustomize nor helm takes files from outside their own folder.
COPIES: Final = {
    DEPLOY / "kustomize" / "base" / "kubernetes.yaml": DEPLOY / "kubernetes.yaml",
    _CHART / "files" / "admission.yaml": DEPLOY / "admission.yaml",
    _CHART / "files" / "alerts.yaml": DEPLOY / "alerts.yaml",
    _CHART / "files" / "dashboard.json": DEPLOY / "dashboard.json",
}
_HEAD: Final = """\
# weft's chart

weft as a DaemonSet: a pod network for Kubernetes, interoperable with flannel.
[How to run weftd on the nodes of Kubernetes](../../docs/howto/run-weftd-in-kubernetes.md) has the steps around it.

```sh
kubectl create namespace kube-flannel
kubectl label namespace kube-flannel pod-security.kubernetes.io/enforce=privileged
helm install weft deploy/chart --namespace kube-flannel --set podCidr=10.244.0.0/16 --set flannel.image.repository=…
```

## Values

Names are those of flannel's chart, so that its values files work but for `flannel.image`.
`make docs` makes this table from `values.schema.json` and `values.yaml`.

| Value | Type | Default | Meaning |
|---|---|---|---|
"""


_MONITORING: Final = """\
# For Prometheus' operator: reads the metrics of weft's pods, and has the alerts of alerts.yaml. Made by `make docs`.
#
#   kubectl apply -f deploy/monitoring.yaml
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: weft
  namespace: kube-flannel
  labels:
    tier: node
    k8s-app: flannel
    app: flannel
spec:
  selector:
    matchLabels:
      app: flannel
  podMetricsEndpoints:
    - port: healthz
      path: /metrics
      interval: 30s
      relabelings:
        - sourceLabels: [__meta_kubernetes_pod_node_name]
          targetLabel: node
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: weft
  namespace: kube-flannel
  labels:
    tier: node
    k8s-app: flannel
    app: flannel
spec:
"""


def monitoring() -> str:
    """Return what Prometheus' operator is given."""
    return _MONITORING + indent((DEPLOY / "alerts.yaml").read_text(), "  ")


def readme() -> str:
    """Return the chart's README."""
    schema = json.loads((_CHART / "values.schema.json").read_text())
    values = yaml.safe_load((_CHART / "values.yaml").read_text())
    return _HEAD + "".join(_rows(schema, schema["definitions"], values, ""))


def _rows(schema: Any, definitions: Any, value: Any, path: str) -> Iterator[str]:
    """Give the lines of a value, and of those within it."""
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    if "properties" in schema and "description" not in schema:
        for name, inner in schema["properties"].items():
            within = value.get(name) if isinstance(value, dict) else None
            yield from _rows(inner, definitions, within, f"{path}.{name}" if path else name)
        return
    kind = schema.get("type") or " or ".join(f"`{each}`" for each in schema["enum"])
    yield f"| `{path}` | {kind} | {_default(value)} | {schema['description']} |\n"


def _default(value: Any) -> str:
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, str) and "\n" in value:
        return "see `values.yaml`"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    for copy, original in COPIES.items():
        shutil.copyfile(original, copy)
    MONITORING.write_text(monitoring())
    README.write_text(readme())
