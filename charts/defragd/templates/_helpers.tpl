{{- define "defragd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, with the chart's name behind it unless it is part of it. 52 characters leave
     room for "-metrics" and a pod's suffix. A Service's name has no dots, a release's may have some. */}}
{{- define "defragd.fullname" -}}
{{- $release := replace "." "-" .Release.Name }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name $release }}
{{- $release | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" $release $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "defragd.selectorLabels" -}}
app.kubernetes.io/name: {{ include "defragd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "defragd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "defragd.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: defragd
{{- end }}

{{- define "defragd.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "defragd.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "defragd.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "defragd.configMapName" -}}
{{- default (include "defragd.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{/* defragd.yaml. What the schema cannot say about it is said here, before a pod stumbles over it. */}}
{{- define "defragd.config" -}}
{{- $secrets := .Values.sourceSecrets }}
{{- $names := list }}
{{- range $i, $source := .Values.config.sources }}
{{- if has $source.name $names }}
{{- fail (printf "config.sources[%d].name: %q is used twice; give each source a name of its own" $i $source.name) }}
{{- end }}
{{- $names = append $names $source.name }}
{{- range $kind, $p := omit $source "name" }}
{{- $at := printf "config.sources[%d].%s" $i $kind }}
{{- $b := default dict $p.basicAuth }}
{{- $files := dict "bearerTokenFile" $p.bearerTokenFile "caFile" $p.caFile "certFile" $p.certFile "keyFile" $p.keyFile "basicAuth.usernameFile" $b.usernameFile "basicAuth.passwordFile" $b.passwordFile }}
{{- $o := default dict $p.oauth2 }}
{{- $t := default dict $o.tls }}
{{- $files = merge $files (dict "oauth2.clientSecretFile" $o.clientSecretFile "oauth2.tls.caFile" $t.caFile "oauth2.tls.certFile" $t.certFile "oauth2.tls.keyFile" $t.keyFile) }}
{{- range $header, $file := default dict $p.headerFiles }}
{{- $files = merge $files (dict (printf "headerFiles.%s" $header) $file) }}
{{- end }}
{{- range $field, $file := $files }}
{{- if hasPrefix "/etc/defragd/secrets/" (default "" $file) }}
{{- $secret := index (splitList "/" $file) 4 }}
{{- if not (has $secret $secrets) }}
{{- fail (printf "%s.%s: %q lies in no Secret that is mounted; add %q to sourceSecrets" $at $field $file $secret) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml .Values.config }}
{{- end }}
