#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# upstream.sh FOCUS...: Kubernetes' own specs of [sig-network] in a cluster of weft: those whose names match one of the regular expressions;
# writes a table of what passed and failed to bin/e2e-upstream.md. Each FOCUS is a separate run with a timeout, two at a time: a spec that
# hangs does not affect other runs.
#
#	WEFT_E2E_CLUSTER=N       uses an existing cluster
#	WEFT_E2E_CNI=reference   another network
#	WEFT_E2E_SKIP=REGEXP     the specs to skip
#	WEFT_E2E_TIMEOUT=25m     the timeout of a run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
[ $# -gt 0 ] || { echo "upstream.sh: which specs?" >&2; exit 2; }
# Specs that require a cloud, a second address family, or disposable nodes. See docs/design/e2e.md.
skip=${WEFT_E2E_SKIP:-'Disruptive|Feature:([^N]|No|Networking)|DualStack|IPv6|LoadBalancer|PerformanceDNS|Serial|Federation|Slow'}
limit=${WEFT_E2E_TIMEOUT:-25m}
"$here/../deps.sh" kube
"$here/build.sh"
"$here/build.sh" upstream

cni=${WEFT_E2E_CNI:-weft}
name=${WEFT_E2E_CLUSTER:-}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ -z "$name" ]; then
	name=upstr
	"$here/cluster" down --name $name
	trap '"$here/cluster" down --name $name; rm -rf "$out"' EXIT
	"$here/cluster" up --name $name --cni "$cni"
fi
. "$here/lib/versions.sh"
. "$here/lib/names.sh"

# specs NUMBER FOCUS: one run; its exit is recorded in a file, because `wait -n` does not report which one exited.
specs() {
	mkdir "$out/$1"
	local code=0
	# It creates files in the working directory.
	(cd "$out/$1" && timeout -k 30 90m "$here/cluster" exec --name "$name" control "$bin/network.test" -test.timeout=85m -kubeconfig="$pki/admin.kubeconfig" -provider=skeleton \
		-ginkgo.focus="$2" -ginkgo.skip="$skip" -ginkgo.no-color -ginkgo.silence-skips -ginkgo.timeout="$limit" \
		-ginkgo.junit-report="$out/$1/report.xml" -delete-namespace-on-failure=true >"$out/$1/log" 2>&1) || code=$?
	echo $code >"$out/$1/code"
	[ -s "$out/$1/report.xml" ] || tail -30 "$out/$1/log" >&2
}

running=0 i=0
for focus; do
	[ $running -lt 2 ] || { wait -n; running=$((running - 1)); }
	i=$((i + 1)) running=$((running + 1))
	specs $i "$focus" &
done
wait
mkdir -p "$repo/bin"
cat "$out"/*/log >"$repo/bin/e2e-upstream.log"
(cd "$repo" && go run ./test/kube/table -network "$cni" -reasons "$here/table/reasons" "$out"/*/report.xml) | tee "$repo/bin/e2e-upstream.md"
[ "$(cat "$out"/*/code | sort -u)" = 0 ]
