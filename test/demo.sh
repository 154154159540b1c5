#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The demo: a cluster of three nodes with the pods of examples/ and two VMs on this host, of which one is live-migrated; it tests
# connectivity between all endpoints, and removes everything.
#
#   make demo             exits with 1 if a connection fails that should succeed
#   KEEP=1 make demo      keeps the lab, prints what to try next, and ends with the link of its page
#   VM=0 make demo        without VMs, which need QEMU, and minutes if they are emulated on a busy host
#
# DIR is the lab's state directory and NODES the number of nodes.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=${DIR:-/run/weft/demo}
unset DIR # it means another directory to the Makefile
nodes=${NODES:-3}
keep=${KEEP:-}
export VM=${VM:-1}
weft=bin/weft

say() { printf '\n== %s\n' "$*"; }

if [ -z "${PREPARED:-}" ]; then
	say "what the demo needs"
	test/deps.sh demo
	make --no-print-directory build
fi

# vms: whether VMs can run on this host, and if not, why.
vms() {
	local apart=-n
	[ "$(id -u)" -eq 0 ] || apart=-Urn
	if ! { : <>/dev/net/tun; } 2>/dev/null || ! unshare $apart ip tuntap add probe mode tap 2>/dev/null; then
		echo "demo: /dev/net/tun cannot be opened" >&2
		return 1
	fi
	$weft vm image >/dev/null
}

if [ "$(id -u)" -ne 0 ]; then
	if sudo -n true 2>/dev/null; then
		exec sudo env PREPARED=1 "PATH=$PATH" "DIR=$dir" "NODES=$nodes" "KEEP=$keep" "VM=$VM" "$0"
	fi
	if [ -z "$keep" ] && unshare -Urnm true 2>/dev/null; then
		echo "demo: not root, so in namespaces of this user's own"
		[ "$VM" = 0 ] || vms || VM=0 # the guest is made of what the network has
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
		more || code=1
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

# page starts the page of the lab, which ends when the lab is down, and prints its link.
page() {
	local out ui code=0
	out=$(mktemp)
	setsid $weft lab ui --dir "$dir" </dev/null >"$out" 2>&1 &
	ui=$!
	for _ in $(seq 600); do
		! grep -q '^http' "$out" || break
		kill -0 $ui 2>/dev/null || break
		sleep 0.1
	done
	say "the lab in a browser, until it is down"
	sed 's/^/  /' "$out"
	if ! grep -q '^http' "$out"; then
		echo "demo: the page has not started; weft lab ui --dir $dir starts it" >&2
		code=1
	fi
	rm -f "$out"
	return $code
}

more() {
	say "the lab stays up; try"
	cat <<-TXT
	  $weft lab ui --dir $dir                    # another link to the page
	  $weft lab status --dir $dir
	  $weft lab exec --dir $dir node1 -- ip route
	  $weft lab exec --dir $dir default/web -- ping -c 1 fd18::3
	  $weft lab graph --dir $dir -o svg > lab.svg
	  $weft mesh --state-dir $dir/nodes/node1/agent
	  $weft vm console --dir $dir/nodes/node2/machines masked
	  $weft lab migrate --dir $dir masked node1
	  $weft lab down --dir $dir
	TXT
	page
}

if $weft lab status --dir "$dir" -o json 2>/dev/null | grep -q '"phase": "up"'; then
	echo "demo: one is up in $dir already, kept by KEEP=1; take it down with: $weft lab down --dir $dir" >&2
	exit 1
fi

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

from=examples,examples/multi-network
if [ "$VM" != 0 ]; then
	say "a guest image for the VMs: Debian's kernel and busybox"
	if vms; then
		from=$from,examples/machines
	else
		echo "demo: VMs cannot run on this host and are SKIPPED" >&2
		VM=0
	fi
fi

say "a lab of $nodes nodes with the pods of ${from//,/, }"
$weft lab up --nodes "$nodes" --from "$from" --addresses pools --dir "$dir"

say "nodes, pods and addresses"
$weft lab status --dir "$dir"

say "a pod with a second network: net1 beside eth0, and the default route over eth0"
$weft lab exec --dir "$dir" default/two-networks -- ip -4 -br addr
$weft lab exec --dir "$dir" default/two-networks -- ip -4 route
$weft lab exec --dir "$dir" default/two-networks -- ip -4 -br addr show net1 | grep -q '10\.37\.132\.20/24'
$weft lab exec --dir "$dir" default/two-networks -- ip -4 route show default | grep -q 'dev eth0'

if [ "$VM" != 0 ]; then
	say "two VMs: one with the masquerade binding, one with weft-direct"
	for name in masked direct; do
		at=$(dirname "$dir"/nodes/*/machines/default,$name/status.json)
		$weft vm status --dir "$(dirname "$at")" "default/$name"
		ip=$($weft vm status -o json --dir "$(dirname "$at")" "default/$name" | sed -n 's/.*"ipAddress": "\(.*\)".*/\1/p')
		$weft lab exec --dir "$dir" default/web -- ping -c 1 -W 10 "$ip"
	done
fi

if [ "$VM" != 0 ] && [ "$nodes" -gt 1 ]; then
	say "a virtual machine goes to another node, with its address and a connection to it"
	to=node1
	[ ! -e "$dir/nodes/$to/machines/default,direct" ] || to=node2
	$weft lab migrate --dir "$dir" direct "$to"
fi

if [ "$nodes" -gt 1 ]; then
	say "a route is broken on purpose: weft explain names it, and weft trace sends a packet that is lost there"
	ip=$($weft lab status --dir "$dir" | sed -n 's/^default\/web *\([0-9.]*\) .*/\1/p')
	# A pod of another node than web's, and that node.
	read -r pod at < <($weft lab status --dir "$dir" | awk '$1 == "default/web" {web = $(NF - 2)} $1 ~ "/" && $(NF - 1) == "pod" {on[$1] = $(NF - 2)}
		END {for (pod in on) if (on[pod] != web) {print pod, on[pod]; exit}}')
	$weft lab exec --dir "$dir" "$at" -- ip rule add to "$ip" lookup 100
	$weft lab exec --dir "$dir" "$at" -- ip route add blackhole "$ip" table 100
	code=0
	$weft explain --dir "$dir" "$pod" "$ip" || code=$?
	[ $code -eq 1 ] # something is in the way
	code=0
	traced=$($weft trace --dir "$dir" "$pod" "$ip") || code=$?
	echo "$traced"
	[ $code -eq 1 ] && grep -q 'a blackhole route of' <<<"$traced"
	$weft lab exec --dir "$dir" "$at" -- ip route flush table 100
	$weft lab exec --dir "$dir" "$at" -- ip rule del to "$ip" lookup 100
	$weft explain --dir "$dir" "$pod" default/web
	$weft trace --dir "$dir" "$pod" default/web
fi

say "who reaches whom"
$weft lab reach --dir "$dir"
