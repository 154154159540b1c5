#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# burst.sh [PODS] [ROUNDS] [CNI...]: measures how long a node takes until PODS pods that are created at once are ready, with each network
# in turn. By default 250 pods, 3 rounds, and constant, weft and reference. All nodes are of one cluster, each with its own network, so that
# the control plane is the same one. Prints a line for each: network, round, seconds until all are ready, seconds until all are deleted, seconds
# of CPU time of the whole node for both, and the host's load before, which is mostly that of the previous round; and the medians, with
# their ratio to the first network's. On a shared host the CPU time is more meaningful.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pods=${1:-250} rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- constant weft reference
[ "$pods" -le 250 ] || { echo "burst: a node's prefix has addresses for 250 pods and the cluster's own" >&2; exit 2; }

cluster() { local verb=$1; shift; "$here/cluster" "$verb" --name burst "$@"; }
lines=$(mktemp)
cluster down
trap 'cluster down; rm -f "$lines"' EXIT
cluster up --cni "$(IFS=,; echo "$*")" --nodes $# --max-pods 270 --no-dns

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%.1f", b-a}'; }
# cpu NODE: nanoseconds of CPU time of its cgroup.
cpu() {
	cat "/sys/fs/cgroup/cpuacct/wk-burst-$1/cpuacct.usage" 2>/dev/null || awk '$1=="usage_usec"{print $2 "000"}' "/sys/fs/cgroup/wk-burst-$1/cpu.stat"
}

# burst NODE PODS: prints the three times.
burst() {
	local began up down used
	used=$(cpu "$1")
	cluster kubectl apply -f - >/dev/null <<-E
		apiVersion: apps/v1
		kind: Deployment
		metadata: {name: burst}
		spec:
		  replicas: 0
		  selector: {matchLabels: {app: burst}}
		  template:
		    metadata: {labels: {app: burst}}
		    spec:
		      terminationGracePeriodSeconds: 0
		      nodeSelector: {kubernetes.io/hostname: $1}
		      containers: [{name: c, image: "registry.k8s.io/pause:3.10.2"}]
	E
	began=$(now)
	cluster kubectl scale deployment burst --replicas="$2" >/dev/null
	cluster kubectl rollout status deployment/burst --timeout=900s >/dev/null
	up=$(since "$began")
	began=$(now)
	cluster kubectl delete deployment burst --cascade=foreground --timeout=900s >/dev/null
	cluster kubectl wait --for=delete pod -l app=burst --timeout=900s >/dev/null 2>&1 || true
	down=$(since "$began")
	sleep 5 # what the runtime does after the pods have gone
	printf '%s\t%s\t%s\n' "$up" "$down" "$(awk -v a="$used" -v b="$(cpu "$1")" 'BEGIN{printf "%.1f", (b-a)/1e9}')"
}

for i in $(seq $#); do burst "node$i" 10 >/dev/null; done # warm-up
for round in $(seq "$rounds"); do
	for i in $(seq $#); do
		at=$(((i + round - 2) % $# + 1)) # each is the first one once
		sleep 15
		printf '%s\t%s\t%s\t%s\n' "${!at}" "$round" "$(cut -d' ' -f1 /proc/loadavg)" "$(burst "node$at" "$pods")" |
			awk -F'\t' -v OFS='\t' '{print $1, $2, $4, $5, $6, $3}' | tee -a "$lines"
	done
done

# median NETWORK COLUMN
median() { awk -F'\t' -v c="$1" -v n="$2" '$1==c{print $n}' "$lines" | sort -n | awk '{v[NR]=$1} END{print NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }
echo
for cni; do printf '%s\t%s\t%s\n' "$cni" "$(median "$cni" 3)" "$(median "$cni" 5)"; done |
	awk -F'\t' 'NR==1{up=$2; cpu=$3} {printf "%s: median %.1f s, %.2f of the first; processor %.1f s, %.2f of the first\n", $1, $2, $2/up, $3, $3/cpu}'
