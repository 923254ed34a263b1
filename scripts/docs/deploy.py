"""What in deploy/ is made from something else there, so that each file can be fetched and used by itself.

These are copies for kustomize and the chart, the objects of Prometheus' operator, a dashboard, and the
README of the chart's values.
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
DASHBOARD: Final = DEPLOY / "dashboard.json"
# Neither kustomize nor helm takes files from outside their own folder.
COPIES: Final = {
    DEPLOY / "kustomize" / "base" / "kubernetes.yaml": DEPLOY / "kubernetes.yaml",
    DEPLOY / "kustomize" / "network-policy" / "rights.yaml": DEPLOY / "network-policy.yaml",
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


def _nine(by: str, of: str, minutes: int = 5) -> str:
    """Ask for what nine of ten stay below in a histogram of the nodes that are shown."""
    return f"histogram_quantile(0.9, sum by ({by}) (rate({of}[{minutes}m])))"


# Of a dashboard's panels: title, unit as Grafana names it, and each query with its legend.
_PANELS: Final = (
    ("Nodes whose pods have their network", "short", {"sum(weft_ready)": "ready", "count(weft_ready)": "all"}),
    ("Problems", "short", {"sum by (code) (weft_problems)": "{{code}}"}),
    ("Other nodes that are not served", "short", {'sum by (state) (weft_peers{state!="served"})': "{{state}}"}),
    ("Versions and configurations", "short", {
        "count by (version) (weft_build_info)": "{{version}}",
        "count by (digest, backend) (weft_config_info)": "{{backend}} {{digest}}",
    }),
    ("A pod's ADD, nine of ten", "s", {
        _nine("plugin, le", 'weft_cni_seconds_bucket{command="ADD",instance=~"$node"}'): "{{plugin}}",
        _nine("le", 'weft_cni_waited_seconds_bucket{instance=~"$node"}'): "waited",
    }),
    ("Calls of plugins", "ops", {
        'sum by (command, result) (rate(weft_cni_requests_total{instance=~"$node"}[5m]))': "{{command}} {{result}}",
    }),
    ("From the store to the kernel, nine of ten", "s", {
        _nine("plane, le", 'weft_store_to_kernel_seconds_bucket{instance=~"$node"}', 15): "{{plane}}",
    }),
    ("Repairs of what others changed", "ops", {
        'sum by (plane, code) (rate(weft_reconcile_repairs_total{instance=~"$node"}[15m]))': "{{plane}} {{code}}",
    }),
    ("Age of the store's last word", "s", {'weft_store_event_age_seconds{instance=~"$node"}': "{{instance}}"}),
    ("Addresses", "short", {'sum by (family, state) (weft_addresses{instance=~"$node"})': "{{family}} {{state}}"}),
    ("Packets that tunnels lose", "pps", {
        'sum by (device, direction) (rate(weft_device_lost_packets_total{instance=~"$node"}[5m]))':
            "{{device}} {{direction}}",
    }),
    ("MTU", "bytes", {
        'weft_device_mtu_bytes{instance=~"$node"}': "{{device}} of {{instance}}",
        'weft_pod_mtu_bytes{instance=~"$node"}': "pods of {{instance}}",
    }),
    ("Memory of the daemon", "bytes", {
        'process_resident_memory_bytes{instance=~"$node"} and on (instance) weft_ready': "{{instance}}",
    }),
    ("Processor time of the daemon", "percentunit", {
        'rate(process_cpu_seconds_total{instance=~"$node"}[5m]) and on (instance) weft_ready': "{{instance}}",
    }),
)  # fmt: skip


def dashboard() -> str:
    """Return a dashboard for Grafana 9 and newer, which asks for a source of data and for nodes."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number + 1,
            "title": title,
            "type": "timeseries",
            "datasource": source,
            "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + place), "datasource": source, "expr": asked, "legendFormat": legend}
                for place, (asked, legend) in enumerate(queries.items())
            ],
        }
        for number, (title, unit, queries) in enumerate(_PANELS)
    ]
    nodes = {"name": "node", "label": "Node", "type": "query", "query": "label_values(weft_ready, instance)"}
    choices = [
        {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"},
        {**nodes, "datasource": source, "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*"},
    ]
    about = {"title": "weft", "uid": "weft", "tags": ["network"], "schemaVersion": 37, "refresh": "1m"}
    time = {"from": "now-6h", "to": "now"}
    return json.dumps({**about, "time": time, "templating": {"list": choices}, "panels": panels}, indent=1) + "\n"


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


def write() -> None:
    DASHBOARD.write_text(dashboard())
    for copy, original in COPIES.items():
        shutil.copyfile(original, copy)
    MONITORING.write_text(monitoring())
    README.write_text(readme())
