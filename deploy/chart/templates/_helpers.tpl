{{- define "weft.image" -}}
{{ .Values.flannel.image.repository }}:{{ .Values.flannel.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* What weft does not have is refused, not left out. */}}
{{- define "weft.check" -}}
{{- if .Values.netpol.enabled -}}
{{- fail "netpol.enabled: weft has no network policies; run kube-network-policies beside it, from a manifest of its own" -}}
{{- end -}}
{{- if not (or .Values.podCidr .Values.podCidrv6) -}}
{{- fail "podCidr and podCidrv6 are both empty: expected the network of one family at least" -}}
{{- end -}}
{{- end -}}

{{/* The network configuration: flannel's net-conf.json. */}}
{{- define "weft.netconf" -}}
{{- $f := .Values.flannel -}}
{{- $conf := dict -}}
{{- if .Values.podCidr -}}{{- $_ := set $conf "Network" .Values.podCidr -}}{{- else -}}{{- $_ := set $conf "EnableIPv4" false -}}{{- end -}}
{{- if .Values.podCidrv6 -}}{{- $_ := set $conf "EnableIPv6" true -}}{{- $_ := set $conf "IPv6Network" .Values.podCidrv6 -}}{{- end -}}
{{- $_ := set $conf "EnableNFTables" $f.enableNFTables -}}
{{- $backend := dict "Type" $f.backend -}}
{{- $keys := dict "vxlan" (dict "Port" "backendPort" "VNI" "vni" "GBP" "GBP" "DirectRouting" "directRouting" "MTU" "mtu" "MacPrefix" "macPrefix") "ipip" (dict "DirectRouting" "directRouting") "wireguard" (dict "ListenPort" "backendPort" "ListenPortV6" "backendPortv6" "MTU" "mtu" "PSK" "psk" "Mode" "tunnelMode" "PersistentKeepaliveInterval" "keepaliveInterval") -}}
{{- range $key, $value := get $keys $f.backend | default dict -}}
{{- if hasKey $f $value -}}{{- $_ := set $backend $key (get $f $value) -}}{{- end -}}
{{- end -}}
{{- $_ := set $conf "Backend" $backend -}}
{{- toPrettyJson $conf -}}
{{- end -}}
