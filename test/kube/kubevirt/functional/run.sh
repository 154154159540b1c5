#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# functional/run.sh [FOCUS...]: KubeVirt's own functional tests of its network, in a cluster of weft: those whose names match one of the
# regular expressions; without any, all that apply. Writes a table of what passed, what failed and what does not apply, and why, to
# bin/kubevirt-functional.md; logs and reports are in bin/kubevirt-functional. Each FOCUS is a run of its own, one after the other.
#
#	WEFT_E2E_CLUSTER=N       uses an existing cluster with KubeVirt
#	WEFT_E2E_SKIP=REGEXP     specs to skip
#	WEFT_E2E_TIMEOUT=60m     the timeout of a run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kube=$(cd "$here/../.." && pwd)
repo=$(cd "$kube/../.." && pwd)
. "$here/../versions.sh"
. "$kube/lib/versions.sh"
limit=${WEFT_E2E_TIMEOUT:-60m}

say() { echo "kubevirt: $*" >&2; }

"$here/build.sh"
files=$KUBEVIRT_CACHE/functional
out=$repo/bin/kubevirt-functional
rm -rf "$out"
mkdir -p "$out"
name=${WEFT_E2E_CLUSTER:-}
kc() { "$kube/cluster" kubectl --name "$name" "$@"; }

# macvtaps: specs of macvtap want devices of a resource eth0. Here they are on eth1, the wire on which nodes have no addresses and
# a DHCP server is.
macvtaps() {
	kc create configmap -n kube-system macvtap-deviceplugin-config \
		--from-literal=DP_MACVTAP_CONF='[{"name": "eth0", "lowerDevice": "eth1", "mode": "bridge", "capacity": 50}]'
	kc get configmap -n kube-system weft -o 'jsonpath={.data.weft\.yaml}' >"$out/weft.yaml"
	printf '\nvirtualMachines: {macvtaps: /etc/macvtap/DP_MACVTAP_CONF}\n' >>"$out/weft.yaml"
	kc create configmap -n kube-system weft --from-file="$out/weft.yaml" --dry-run=client -o yaml | kc replace -f -
	kc patch daemonset -n kube-system weft --patch-file="$repo/deploy/kubevirt/macvtap.yaml"
	kc rollout status -n kube-system daemonset/weft --timeout=180s
	local conf=$out/udhcpd.conf
	: >"$out/leases"
	printf '%s\n' 'start 10.37.133.20' 'end 10.37.133.250' 'interface br1' "lease_file $out/leases" "pidfile $out/udhcpd.pid" \
		'option subnet 255.255.255.0' >"$conf"
	"$kube/cluster" exec --name "$name" control ip addr replace 10.37.133.1/24 dev br1
	"$kube/cluster" exec --name "$name" control busybox udhcpd "$conf"
}
if [ -z "$name" ]; then
	name=kvfun
	"$kube/cluster" down --name $name
	trap '[ ! -s "$out/udhcpd.pid" ] || kill "$(cat "$out/udhcpd.pid")"; "$kube/cluster" down --name $name' EXIT
	"$kube/cluster" up --name $name --cni weft --dual-stack
	"$here/../install.sh" $name
	"$kube/cluster" load --name $name "$files/guests.tar"
	# All nodes are this host: a guest that started on one can run on each of them. KubeVirt says so of no node whose CPU, emulated,
	# counts as an obsolete model.
	for node in $(kc get nodes -o 'jsonpath={.items[*].metadata.name}'); do
		model=
		while [ -z "$model" ]; do
			model=$(kc get node "$node" -o json | grep -o 'host-model-cpu.node.kubevirt.io/[^"]*' | head -1 | cut -d/ -f2) || sleep 2
		done
		kc annotate --overwrite node "$node" node-labeller.kubevirt.io/skip-node=true >&2
		kc label --overwrite node "$node" "cpu-model-migration.node.kubevirt.io/$model=true" >&2
	done
	macvtaps >&2
fi
. "$kube/lib/names.sh"
[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 75000 ] || kc apply -f "$here/../passt-ports.yaml" >&2

# What does not apply: a part of a spec's name, a tab, the reason.
grep -v '^#' "$here/not-applicable" >"$out/not-applicable"
if ! unshare -n ip link add vlans type bridge vlan_filtering 1 2>/dev/null; then
	printf '%s\tneeds bridges with VLANs, which this kernel lacks\n' '[test_id:1577]with secondary network only' \
		'[test_id:1578]with default network and secondary network' '[test_id:676]should configure valid custom MAC address' \
		'[test_id:1756]should report all interfaces in Status' 'on the secondary interface with no dhcp server' \
		'[test_id:1757] should report guest interfaces' >>"$out/not-applicable"
fi
[ "$(nproc)" -ge 3 ] || printf '%s\tneeds nodes with three processors\n' 'MultiQueue VMI should boot fedora' >>"$out/not-applicable"
skip=$(cut -f1 "$out/not-applicable" | sed 's/[][\.*+?(){}|^$]/\\&/g' | paste -sd '|')
[ $# -gt 0 ] || set -- .
# The outside world is the control plane's host, which is no node; the cluster's DNS has a name for each IPv4 address.
outside=(-conn-check-ipv4-address="$CONTROL_IP" -conn-check-ipv6-address="$CONTROL_IP6"
	-conn-check-dns="${CONTROL_IP//./-}.default.pod.cluster.local")
i=0 failed=0
for focus; do
	i=$((i + 1))
	mkdir "$out/$i"
	(cd "$out/$i" && timeout -k 30 180m "$kube/cluster" exec --name "$name" control "$files/network.test" -test.timeout=175m \
		-kubeconfig="$pki/admin.kubeconfig" -kubectl-path="$bin/kubectl" -virtctl-path="$KUBEVIRT_CACHE/bin/virtctl" \
		-config="$files/default-config.json" -installed-namespace=kubevirt -container-prefix=localhost/kubevirt -container-tag="$KUBEVIRT_VERSION" \
		-artifacts="$out/$i" "${outside[@]}" -ginkgo.focus="$focus" -ginkgo.skip="$skip${WEFT_E2E_SKIP:+|$WEFT_E2E_SKIP}" -ginkgo.no-color -ginkgo.v \
		-ginkgo.timeout="$limit" -ginkgo.junit-report="$out/$i/report.xml" >"$out/$i/log" 2>&1) || failed=1
	[ -s "$out/$i/report.xml" ] || { tail -30 "$out/$i/log" >&2; exit 1; }
done
(cd "$repo" && env -u GOFLAGS CGO_ENABLED=0 go run -trimpath ./test/kube/table -suite "KubeVirt's functional tests of its network" \
	-reasons "$here/reasons" -not-applicable "$out/not-applicable" "$out"/*/report.xml) | tee "$repo/bin/kubevirt-functional.md"
[ $failed = 0 ]
