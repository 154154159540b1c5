#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# upstream.sh FOCUS [SKIP]: Kubernetes' own specs of [sig-network] whose names match FOCUS, and not SKIP, in a cluster of weft;
# writes a table of what passed and failed to bin/e2e-upstream.md. WEFT_E2E_CLUSTER=N takes a cluster that is there,
# WEFT_E2E_CNI=reference another network, WEFT_E2E_TIMEOUT=9m ends it then.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
focus=${1:?which specs?}
# What wants a cloud, or nodes that one may break, or more than this cluster is.
skip=${2:-'Disruptive|Feature:|DualStack|IPv6|LoadBalancer|PerformanceDNS|Serial|Federation|Slow'}
"$here/../deps.sh" kube
"$here/build.sh"
"$here/build.sh" upstream

cni=${WEFT_E2E_CNI:-weft}
name=${WEFT_E2E_CLUSTER:-}
if [ -z "$name" ]; then
	name=upstr
	"$here/cluster" down --name $name
	trap '"$here/cluster" down --name $name' EXIT
	"$here/cluster" up --name $name --cni "$cni"
fi
out=$(mktemp -d)
. "$here/lib/versions.sh"
. "$here/lib/names.sh"
code=0
# It makes up files where it stands.
(cd "$out" && "$here/cluster" exec --name "$name" control "$bin/network.test" -test.timeout=55m -kubeconfig="$pki/admin.kubeconfig" -provider=skeleton \
	-ginkgo.focus="sig-network.*($focus)" -ginkgo.skip="$skip" -ginkgo.no-color -ginkgo.silence-skips -ginkgo.timeout="${WEFT_E2E_TIMEOUT:-50m}" \
	-ginkgo.junit-report="$out/report.xml" -delete-namespace-on-failure=true >"$out/log" 2>&1) || code=$?
mkdir -p "$repo/bin"
cp "$out/log" "$repo/bin/e2e-upstream.log"
[ -s "$out/report.xml" ] || { tail -30 "$out/log" >&2; exit 1; }
(cd "$repo" && go run ./test/kube/table -network "$cni" <"$out/report.xml") | tee "$repo/bin/e2e-upstream.md"
rm -rf "$out"
exit $code
