{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The image, by its digest if there is one. */}}
{{- define "weft.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The address at which metrics are served; empty: all of the node's. */}}
{{- define "weft.listen" -}}
{{- if eq .Values.monitoring.listen "loopback" }}127.0.0.1{{ end -}}
{{- end -}}

{{/* The agents' configuration: what the other values mean, below .Values.config. */}}
{{- define "weft.config" -}}
{{- $network := dict "mode" .Values.mode -}}
{{- if eq .Values.mode "flannel" -}}
{{- $_ := set $network "masquerade" true -}}{{/* flanneld --ip-masq */}}
{{- end -}}
{{- $vms := dict -}}
{{- if .Values.kubevirt.macvtap -}}
{{- $_ := set $vms "macvtaps" "/etc/macvtap/DP_MACVTAP_CONF" -}}
{{- end -}}
{{- $config := dict
  "kubernetes" (dict "inCluster" true)
  "network" $network
  "runtime" (dict "endpoint" .Values.runtimeEndpoint)
  "install" (dict "confDir" .Values.cni.confDir "binDir" .Values.cni.binDir "hostRoot" "/host")
  "metrics" (dict "address" (printf "%s:%v" (include "weft.listen" .) .Values.agent.metricsPort)) -}}
{{- if .Values.bgp.enabled }}
{{- $_ := set $config "bgp" (dict "socket" "/run/weft/bgp.sock" "secretNamespace" .Release.Namespace) -}}
{{- end -}}
{{- with $vms }}{{ $_ := set $config "virtualMachines" . }}{{ end -}}
{{- toYaml (mustMergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end -}}

{{/* By this annotation a change of the configuration starts the pods again. deploy/base, which is rendered without a
revision, has none: kustomize may change the configuration. */}}
{{- define "weft.annotations" -}}
{{- if .Release.Revision }}
checksum/config: {{ include "weft.config" . | sha256sum }}
{{- end -}}
{{- end -}}

{{/* Whether the DaemonSet weft-tunnels is wanted: "true" or nothing. */}}
{{- define "weft.tunnels" -}}
{{- $udp := eq (dig "network" "encapsulation" "" .Values.config) "udp" -}}
{{- $mesh := has .Values.mode (list "cluster" "flannel") -}}
{{- if and (eq .Values.tunnels.process "always") (not $mesh) -}}
{{- fail (printf "tunnels.process is always, and weft has no tunnels with mode %s: leave it out" .Values.mode) -}}
{{- end -}}
{{- if and $mesh (not .Values.uninstall) (or (eq .Values.tunnels.process "always") (and (eq .Values.tunnels.process "auto") $udp)) -}}
true
{{- end -}}
{{- end -}}
