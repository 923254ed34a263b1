{{- define "weft.image" -}}
{{- $image := .Values.flannel.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{/* What weft does not have is refused, not left out. */}}
{{- define "weft.check" -}}
{{- $repository := .Values.flannel.image.repository -}}
{{- if regexMatch "^(.*-)?flannel(-cni-plugin)?$" (base $repository) -}}
{{- fail (printf "flannel.image.repository: %s is flannel's image, which has no weft in it. A values file of flannel's brings it along: take flannel.image out of that file, or set flannel.image.repository and flannel.image.tag to weft's image, which deploy/Containerfile builds" $repository) -}}
{{- end -}}
{{- range concat .Values.flannel.args .Values.flannel.extraArgs -}}
{{- if and $.Values.netpol.enabled (regexMatch "^--?network-policy(=|$)" .) -}}
{{- fail (printf "flannel.args: %s stands beside netpol.enabled, which says it by netpol.mode; take one of them out" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.netpol.enabled (semverCompare "<1.28.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "netpol.enabled: Kubernetes %s cannot leave pods of the nodes' own network out of a list (spec.hostNetwork), so nodes could not enforce policies; expected 1.28 or newer, or netpol.enabled=false" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if not (or .Values.podCidr .Values.podCidrv6) -}}
{{- fail "podCidr and podCidrv6 are both empty: expected the network of one family at least" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled (not .Values.flannel.healthz.port) -}}
{{- fail "podMonitor.enabled: flannel.healthz.port is 0, so there are no metrics to read" -}}
{{- end -}}
{{- if and .Values.flannel.psk (not (has .Values.flannel.backend (list "wireguard" "ipsec"))) -}}
{{- fail (printf "flannel.psk: backend %s encrypts nothing; expected wireguard or ipsec" .Values.flannel.backend) -}}
{{- end -}}
{{- end -}}

{{/* Labels and annotations of an object: (list root, its own labels, values whose labels and annotations win, first wins). */}}
{{- define "weft.marks" -}}
{{- $root := first . -}}
{{- $labels := dict -}}
{{- $annotations := dict -}}
{{- range slice . 2 -}}
{{- $labels = merge $labels (.labels | default dict) -}}
{{- $annotations = merge $annotations (.annotations | default dict) -}}
{{- end -}}
{{- $labels = merge $labels ($root.Values.global.commonLabels | default dict) -}}
{{- $annotations = merge $annotations ($root.Values.global.commonAnnotations | default dict) -}}
labels: {{- toYaml (merge (deepCopy (index . 1)) $labels) | nindent 2 }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What begins the names of annotations, as --kube-annotation-prefix makes it, or without that its variable. */}}
{{- define "weft.prefix" -}}
{{- $prefix := "flannel.alpha.coreos.com" -}}
{{- range .Values.flannel.extraEnv -}}
{{- if eq .name "FLANNELD_KUBE_ANNOTATION_PREFIX" -}}
{{- if .valueFrom -}}
{{- fail "flannel.extraEnv: FLANNELD_KUBE_ANNOTATION_PREFIX has a valueFrom, which the admission policy cannot read; expected a value" -}}
{{- end -}}
{{- $prefix = .value | default "flannel.alpha.coreos.com" -}}
{{- end -}}
{{- end -}}
{{- range concat .Values.flannel.args .Values.flannel.extraArgs -}}
{{- if regexMatch "^--?kube-annotation-prefix=" . -}}
{{- $prefix = regexReplaceAll "^[^=]*=" . "" -}}
{{- else if regexMatch "^--?kube-annotation-prefix$" . -}}
{{- fail "flannel.args: write --kube-annotation-prefix=PREFIX as one argument" -}}
{{- end -}}
{{- end -}}
{{- if not (contains "/" $prefix) -}}{{- $prefix = printf "%s/" $prefix -}}{{- end -}}
{{- if not (regexMatch "[/-]$" $prefix) -}}{{- $prefix = printf "%s-" $prefix -}}{{- end -}}
{{- $prefix -}}
{{- end -}}

{{/* The network configuration: flannel's net-conf.json. A port of 0 is the back end's own. */}}
{{- define "weft.netconf" -}}
{{- $f := .Values.flannel -}}
{{- $conf := dict -}}
{{- if .Values.podCidr -}}{{- $_ := set $conf "Network" .Values.podCidr -}}{{- else -}}{{- $_ := set $conf "EnableIPv4" false -}}{{- end -}}
{{- if .Values.podCidrv6 -}}{{- $_ := set $conf "EnableIPv6" true -}}{{- $_ := set $conf "IPv6Network" .Values.podCidrv6 -}}{{- end -}}
{{- $_ := set $conf "EnableNFTables" $f.enableNFTables -}}
{{- $backend := dict "Type" $f.backend -}}
{{- $vxlan := dict "Port" "backendPort" "VNI" "vni" "GBP" "GBP" "DirectRouting" "directRouting" "MTU" "mtu" "MacPrefix" "macPrefix" -}}
{{- $wireguard := dict "ListenPort" "backendPort" "ListenPortV6" "backendPortv6" "MTU" "mtu" "PSK" "psk" "Mode" "tunnelMode" "PersistentKeepaliveInterval" "keepaliveInterval" -}}
{{- $keys := dict "vxlan" $vxlan "wireguard" $wireguard "ipip" (dict "DirectRouting" "directRouting") "udp" (dict "Port" "backendPort") "ipsec" (dict "PSK" "psk") -}}
{{- range $key, $value := get $keys $f.backend | default dict -}}
{{- if and (hasKey $f $value) (or (not (hasPrefix "backendPort" $value)) (get $f $value)) -}}{{- $_ := set $backend $key (get $f $value) -}}{{- end -}}
{{- end -}}
{{- $_ := set $conf "Backend" (merge (deepCopy $f.backendOptions) $backend) -}}
{{- toPrettyJson $conf -}}
{{- end -}}
