{{/* The release's name, or `<release>-skerry` where that does not say what it is. */}}
{{- define "skerry.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "skerry.globalmanager" -}}{{ include "skerry.fullname" . }}-globalmanager{{- end -}}
{{- define "skerry.localcontroller" -}}{{ include "skerry.fullname" . }}-localcontroller{{- end -}}

{{- define "skerry.globalmanager.service" -}}
{{ .Values.globalManager.service.name | default (include "skerry.globalmanager" .) }}
{{- end -}}

{{/* Where nodes reach the manager. */}}
{{- define "skerry.globalmanager.address" -}}
{{- if .Values.globalManager.edgeTls.enabled }}wss://{{ end -}}
{{ .Values.localController.managerAddress | default (printf "%s.%s:%v" (include "skerry.globalmanager.service" .) .Release.Namespace .Values.globalManager.service.port) }}
{{- end -}}

{{- define "skerry.globalmanager.account" -}}
{{- if .Values.globalManager.serviceAccount.create -}}
{{ .Values.globalManager.serviceAccount.name | default (include "skerry.globalmanager" .) }}
{{- else -}}
{{ required "globalManager.serviceAccount.name: name the account that is there, or let it be made (create: true)" .Values.globalManager.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* What selects the pods of a component: (list . "globalmanager"). Selectors never change, so there is no version in it. */}}
{{- define "skerry.selector" -}}
app.kubernetes.io/name: skerry-{{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end -}}

{{- define "skerry.labels" -}}
{{ include "skerry.selector" . }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: skerry
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image of ours: (list . .Values.globalManager.image). */}}
{{- define "skerry.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{ $root.Values.imageRegistry }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{- define "skerry.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
