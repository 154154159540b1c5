#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# npa.sh [RUN]: the conformance suite of network-policy-api (ClusterNetworkPolicy) in a cluster of weft; RUN is a regular expression of its
# cases. Writes a table of what passed and failed to bin/npa.md.
#
#	WEFT_E2E_CLUSTER=N   uses an existing cluster
#	WEFT_NPA_EXEMPT=...  features to skip
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
"$here/../deps.sh" kube
"$here/build.sh"
"$here/build.sh" npa
name=${WEFT_E2E_CLUSTER:-}
if [ -z "$name" ]; then
	name=npa
	"$here/cluster" down --name $name
	trap '"$here/cluster" down --name $name' EXIT
	"$here/cluster" up --name $name
fi
. "$here/lib/versions.sh"
. "$here/lib/names.sh"
suite=$KUBE_CACHE/npa
kc get crd clusternetworkpolicies.policy.networking.k8s.io >/dev/null 2>&1 || new=yes
kc apply -f "$suite/crd.yaml"
kc wait --for=condition=Established crd/clusternetworkpolicies.policy.networking.k8s.io --timeout=60s
"$here/cluster" load --name "$name" "$suite/npa.tar"
# Agents periodically look for CRDs that did not exist when they started.
[ -z "${new-}" ] || sleep 40
mkdir -p "$repo/bin"
[ -e /proc/net/sctp ] || echo "npa: this kernel may have no SCTP: the pods speak its first packets by hand then (test/kube/sctp)" >&2
code=0
(cd "$(mktemp -d)" && timeout -k 30 60m "$here/cluster" exec --name "$name" control "$suite/npa.test" -test.v -test.timeout=55m -all-features \
	-exempt-features="${WEFT_NPA_EXEMPT:-}" -test.run "^TestConformance\$/${1:-}") >"$repo/bin/npa.log" 2>&1 || code=$?
{
	echo '| case | | s |'
	echo '|---|---|---|'
	sed -nE 's/^ +--- (PASS|FAIL|SKIP): TestConformance\/([^ ]+\/[^ ]+) \(([0-9.]+)s\)$/\2 \1 \3/p' "$repo/bin/npa.log" |
		awk '{gsub("_", " ", $1); sub("/", ": ", $1); print "| " $1 " | " ($2 == "PASS" ? "passed" : $2 == "FAIL" ? "**failed**" : "left out") " | " int($3 + 0.5) " |"}'
} | tee "$repo/bin/npa.md"
[ $code = 0 ] || tail -n 30 "$repo/bin/npa.log" >&2
exit $code
