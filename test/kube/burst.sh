#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# burst.sh [PODS] [ROUNDS] [CNI...]: how long one node takes until so many pods, all asked for at once, are ready: with each network, in
# turns. By default 250 pods, 3 rounds, weft and reference. Prints a line for each: network, round, seconds to start all, to end all.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pods=${1:-250} rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- weft reference
[ "$pods" -le 250 ] || { echo "burst: a node's prefix has addresses for 250 pods and the cluster's own" >&2; exit 2; }

take_down() { for cni; do "$here/cluster" down --name "b${cni:0:4}"; done; }
take_down "$@"
trap 'take_down "$@"' EXIT
for cni; do "$here/cluster" up --name "b${cni:0:4}" --cni "$cni" --nodes 1 --max-pods 270; done

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%.1f", b-a}'; }
for round in $(seq "$rounds"); do
	for cni; do
		k() { "$here/cluster" kubectl --name "b${cni:0:4}" "$@"; }
		k create deployment burst --image=registry.k8s.io/pause:3.10.2 --replicas=0 >/dev/null
		k patch deployment burst -p '{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 0}}}}' >/dev/null
		began=$(now)
		k scale deployment burst --replicas="$pods" >/dev/null
		k rollout status deployment/burst --timeout=900s >/dev/null
		up=$(since "$began")
		began=$(now)
		k delete deployment burst --cascade=foreground --timeout=900s >/dev/null
		k wait --for=delete pod -l app=burst --timeout=900s >/dev/null 2>&1 || true
		printf '%s\t%s\t%s\t%s\n' "$cni" "$round" "$up" "$(since "$began")"
	done
done
