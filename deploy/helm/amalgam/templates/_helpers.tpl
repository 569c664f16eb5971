{{- /* The name of all objects of a release. */ -}}
{{- define "amalgam.name" -}}
{{- if contains "amalgam" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-amalgam" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* What selects the pods. */ -}}
{{- define "amalgam.selector" -}}
app.kubernetes.io/name: amalgam
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "amalgam.labels" -}}
{{ include "amalgam.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* The configuration file. */ -}}
{{- define "amalgam.config" -}}
[server]
listen = "0.0.0.0:8080"
# `/admin` stays inside of the pod: kubectl exec POD -- amalgam keys create --tenant 1
admin_listen = "127.0.0.1:8081"
drain_timeout = "{{ .Values.server.drainSeconds }}s"
{{- with .Values.server.publicUrl }}
public_url = {{ . | toJson }}
{{- end }}
{{- with .Values.server.trustedProxies }}
trusted_proxies = {{ . | toJson }}
{{- end }}
{{ with .Values.config }}
{{ . }}
{{- end }}
{{- end -}}
