{{/*
What the manager does with the objects that it looks after, whether in one namespace or in all. Each verb is there because of
one call of the manager.
*/}}
{{- define "skerry.globalmanager.rules" -}}
# What it looks after. `get`: the second look at an owner before a child is made, or a report is refused because it is gone.
- apiGroups: [sedna.io]
  resources: [datasets, federatedlearningjobs, jointinferenceservices, models]
  verbs: [get, list, watch]
- apiGroups: [sedna.io]
  resources: [datasets/status, federatedlearningjobs/status, jointinferenceservices/status, models/status]
  verbs: [patch]
# The children. `get`: whether the name of a child is free. Server-side apply is a patch, and a creation where there is nothing.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
# A pod is replaced rather than changed. `patch`: the marks on one that Sedna made.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# Only metadata is listed and watched; the content is read of the Secrets that Models and Datasets name.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
# Repeats of an event are folded into a series by a patch.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.rbac.ownerReferencesPermissionEnforcement }}
# Children block the deletion of their owner in the foreground.
- apiGroups: [sedna.io]
  resources: [federatedlearningjobs/finalizers, jointinferenceservices/finalizers]
  verbs: [update]
{{- end }}
{{- end -}}
