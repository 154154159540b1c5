#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The demo: a cluster of three nodes with the pods of examples/ on this machine; who reaches whom; and all away again.
#
#   make demo             exits with 1 when a pair does not reach that should
#   KEEP=1 make demo      leaves the lab up and says what to try next
#
# DIR is the lab's state directory and NODES the number of nodes.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=${DIR:-/run/weft/demo}
nodes=${NODES:-3}
keep=${KEEP:-}
weft=bin/weft

say() { printf '\n== %s\n' "$*"; }

if [ -z "${PREPARED:-}" ]; then
	say "what the demo needs"
	test/deps.sh demo
	make --no-print-directory build
fi

if [ "$(id -u)" -ne 0 ]; then
	if sudo -n true 2>/dev/null; then
		exec sudo env PREPARED=1 "PATH=$PATH" "DIR=$dir" "NODES=$nodes" "KEEP=$keep" "$0"
	fi
	if [ -z "$keep" ] && unshare -Urnm true 2>/dev/null; then
		echo "demo: not root, so in namespaces of this user's own"
		tmp=$(mktemp -d)
		trap 'rmdir "$tmp"' EXIT
		PREPARED=1 DIR=$tmp/lab unshare -Urnm "$0"
		exit
	fi
	echo "demo: a lab makes network namespaces, which needs root: sudo make demo" >&2
	exit 1
fi

finish() {
	code=$?
	trap - EXIT
	trap '' INT TERM
	if [ -n "$keep" ] && [ "$code" -eq 0 ]; then
		more
	else
		say "down"
		$weft lab down --dir "$dir" || code=1
		if [ -e "$dir" ]; then
			echo "demo: $dir is left" >&2
			code=1
		fi
	fi
	exit "$code"
}

more() {
	say "the lab stays up; try"
	cat <<-TXT
	  $weft lab status --dir $dir
	  $weft lab exec --dir $dir node1 -- ip route
	  $weft lab exec --dir $dir default/web -- ping -c 1 fd18::3
	  $weft lab graph --dir $dir -o svg > lab.svg
	  $weft mesh --state-dir $dir/nodes/node1/agent
	  $weft lab down --dir $dir
	TXT
}

if $weft lab status --dir "$dir" -o json 2>/dev/null | grep -q '"phase": "up"'; then
	echo "demo: one is up in $dir already, kept by KEEP=1; take it down with: $weft lab down --dir $dir" >&2
	exit 1
fi

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "a lab of $nodes nodes with the pods of examples/ and examples/multi-network/"
$weft lab up --nodes "$nodes" --from examples,examples/multi-network --dir "$dir"

say "nodes, pods and addresses"
$weft lab status --dir "$dir"

say "a pod with a second network: net1 beside eth0, and the default route over eth0"
$weft lab exec --dir "$dir" default/two-networks -- ip -4 -br addr
$weft lab exec --dir "$dir" default/two-networks -- ip -4 route
$weft lab exec --dir "$dir" default/two-networks -- ip -4 -br addr show net1 | grep -q '10\.37\.132\.20/24'
$weft lab exec --dir "$dir" default/two-networks -- ip -4 route show default | grep -q 'dev eth0'

say "who reaches whom"
$weft lab reach --dir "$dir"
