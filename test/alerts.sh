#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# alerts.sh: tests the chart's alerts with promtool, which it builds into the cache, once: some minutes; its dashboard
# against Grafana's schema; and its objects for the Prometheus operator in an API server with the operator's kinds.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v0.316.0 operator=v0.85.0
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/promtool-$version
if [ ! -x "$cache/promtool" ]; then
	echo "alerts: building promtool $version into $cache (once, some minutes)"
	mkdir -p "$cache"
	GOBIN=$cache CGO_ENABLED=0 go install -trimpath -tags remove_all_sd "github.com/prometheus/prometheus/cmd/promtool@$version"
fi
"$cache/promtool" check rules deploy/chart/files/alerts.yaml
"$cache/promtool" test rules deploy/alerts/test.yaml
(cd test/monitoring && go test -count=1 ./...)
kinds=$(cd "$(mktemp -d)" && go mod download -json "github.com/prometheus-operator/prometheus-operator@$operator" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
WEFT_OPERATOR_KINDS=$kinds/example/prometheus-operator-crd go test -count=1 -run TestMonitoring ./internal/release
