# SPDX-License-Identifier: Apache-2.0
#
# The cluster's network and its DNS. To be sourced after node.sh.

# pod_cidr NODE: waits until the controllers have given the node one.
pod_cidr() {
	local cidr i
	for i in $(seq 300); do
		cidr=$(kc get node "$1" -o 'jsonpath={.spec.podCIDR}' 2>/dev/null) && [ -n "$cidr" ] && { echo "$cidr"; return; }
		sleep 0.2
	done
	die "$1 got no podCIDR"
}

# cni_reference: the reference plugins' bridge chain, and routes from node to node.
cni_reference() {
	local n o cidr
	[ -e "$REFERENCE/.all" ] || die "the reference plugins are not in $REFERENCE: make peers"
	for n in $(node_names); do
		cidr=$(pod_cidr "$n")
		cp "$REFERENCE"/* "$dir/$n/opt-cni/bin/"
		cat >"$dir/$n/etc-cni/net.d/.new" <<-E
			{"cniVersion": "1.0.0", "name": "reference", "plugins": [
			  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
			   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$cidr"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
			  {"type": "portmap", "capabilities": {"portMappings": true}}]}
		E
		mv "$dir/$n/etc-cni/net.d/.new" "$dir/$n/etc-cni/net.d/10-reference.conflist"
		for o in $(node_names); do [ "$o" = "$n" ] || inside "$prefix-$o" ip route replace "$cidr" via "$(node_ip "$n")"; done
	done
}

# cni_weft: as a user installs weft, once the image is in the nodes' runtimes.
cni_weft() {
	[ -f "$repo/bin/weft-image.tar" ] || die "weft's image is not there: make image"
	local n
	for n in $(node_names); do node_load "$n" "$repo/bin/weft-image.tar"; done
	kc create -f "$repo/deploy/nad-crd.yaml" >&2
	kc apply -f "$repo/deploy/crds.yaml" -f "$repo/deploy/weft.yaml" >&2
}

# Nodes route to pods; this lets the control plane, and tests in its namespace, reach them too.
control_routes() {
	local n
	for n in $(node_names); do inside "$prefix" ip route replace "$(pod_cidr "$n")" via "$(node_ip "$n")"; done
}

dns_up() { sed "s#@DNS_IP@#$DNS_IP#; s#@IMAGE@#$IMAGE_COREDNS#" "$here/dns.yaml" | kc apply -f - >&2; }
