{{/* What defragd may do in the namespaces that it watches. docs/rbac.md explains each rule; a test compares
     the two. */}}
{{- define "defragd.rules" -}}
# Objects of people and of defragd are read.
- apiGroups: [defragd.dev]
  resources: [etcdtargets, etcddefragpolicies, etcddefrags]
  verbs: [get, list, watch]
# Runs are made for policies, carry a finalizer while they work, and are removed when they are history.
- apiGroups: [defragd.dev]
  resources: [etcddefrags]
  verbs: [create, patch, delete]
- apiGroups: [defragd.dev]
  resources: [etcdtargets/status, etcddefragpolicies/status, etcddefrags/status]
  verbs: [patch]
# Runs block the deletion of the policy that owns them. Clusters with the admission plug-in
# OwnerReferencesPermissionEnforcement, OpenShift for one, ask for this before they let that be said.
- apiGroups: [defragd.dev]
  resources: [etcddefragpolicies/finalizers]
  verbs: [update]
# Members of targets with a podSelector, and of etcd-io's clusters.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Clusters of other operators: where their members are, and whether they are being changed. Never written.
- apiGroups: [etcd-operator.cozystack.io]
  resources: [etcdclusters, etcdmembers, etcddefrags]
  verbs: [list, watch]
- apiGroups: [operator.etcd.io]
  resources: [etcdclusters]
  verbs: [list, watch]
{{- if .Values.rbac.metricsApis }}
# Signals that are metrics. What stands for a resource here is a metric, or an object with its metric.
- apiGroups: [external.metrics.k8s.io]
  resources: ["*"]
  verbs: [list]
- apiGroups: [custom.metrics.k8s.io]
  resources: ["*"]
  verbs: [get]
{{- end }}
{{- end }}

{{- define "defragd.secretRules" -}}
# TLS and users of clusters. Only by name: nothing here can list Secrets.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}

{{/* A Role or ClusterRole and its binding to the service account.
     root, kind, name, namespace (of a Role), rules (text) */}}
{{- define "defragd.grant" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "defragd.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "defragd.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "defragd.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The names of the sources that are delivered to, one a line. */}}
{{- define "defragd.webhooks" -}}
{{- range .Values.config.sources }}
{{- if .webhook }}
{{ .name }}
{{- end }}
{{- end }}
{{- range .Values.webhook.sources }}
{{ . }}
{{- end }}
{{- end }}

{{/* What is kept of deliveries: a ConfigMap a source, in the release's namespace. */}}
{{- define "defragd.alertRules" -}}
# What is to be created has no name yet as far as RBAC goes, so only the rest is bound to it.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames:
    {{- range (include "defragd.webhooks" . | trim | splitList "\n") }}
    - defragd-alerts-{{ . }}
    {{- end }}
  verbs: [get, update]
{{- end }}

{{- define "defragd.leaseRules" -}}
# Who leads. What is to be created has no name yet as far as RBAC goes, so only the rest is bound to it.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [defragd]
  verbs: [get, update]
{{- end }}
