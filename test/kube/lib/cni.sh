# SPDX-License-Identifier: Apache-2.0
#
# The cluster's network and its DNS. To be sourced after node.sh.

# pod_cidr NODE: waits until the controllers have allocated the node's pod CIDR.
pod_cidr() {
	local cidr i
	for i in $(seq 900); do
		cidr=$(kc get node "$1" -o 'jsonpath={.spec.podCIDR}' 2>/dev/null) && [ -n "$cidr" ] && { echo "$cidr"; return; }
		sleep 0.2
	done
	die "$1 got no podCIDR"
}

# networks_up: sets up each node's network, and weft on its nodes.
networks_up() {
	local n what weft=()
	for n in $(node_names); do
		what=$(cni_of "$n")
		case $what in
		reference) chain_bridge "$n" "$REFERENCE" ;;
		debian) chain_bridge "$n" /usr/lib/cni ;;
		flannel) chain_flannel "$n" ;;
		flanneld) chain_flanneld "$n" ;;
		constant) chain_constant "$n" ;;
		weft) weft+=("$n") ;;
		esac
		[ "$multus" = no ] || weft+=("$n")
	done
	[ ${#weft[@]} -eq 0 ] || weft_up "${weft[@]}"
}

# cni_of NODE: the name of the node's network: that of all nodes, or the node's entry of a list.
cni_of() {
	local all
	IFS=, read -ra all <<<"$cni"
	echo "${all[$(((${1#node} - 1) % ${#all[@]}))]}"
}

# put_conf NODE NAME: atomically writes standard input to that file.
put_conf() { cat >"$dir/$1/etc-cni/net.d/.new" && mv "$dir/$1/etc-cni/net.d/.new" "$dir/$1/etc-cni/net.d/$2"; }

# routes_to NODE: adds routes to its pods on all other nodes.
routes_to() {
	local o cidr
	cidr=$(pod_cidr "$1")
	for o in $(node_names); do [ "$o" = "$1" ] || inside "$prefix-$o" ip route replace "$cidr" via "$(node_ip "$1")"; done
}

# chain_bridge NODE DIR: the bridge chain of the plugins in DIR, and routes from node to node.
chain_bridge() {
	[ -x "$2/bridge" ] || die "there are no plugins in $2: make peers, or apt-get install containernetworking-plugins"
	local cidr
	cidr=$(pod_cidr "$1")
	cp "$2"/* "$dir/$1/opt-cni/bin/"
	put_conf "$1" 10-reference.conflist <<-E
		{"cniVersion": "1.0.0", "name": "reference", "plugins": [
		  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$cidr"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	E
	routes_to "$1"
}

# chain_flannel NODE: flannel's plugin, with the file and the routes of its daemon with host-gw.
chain_flannel() {
	[ -x "$REFERENCE/bridge" ] || die "the reference plugins are not in $REFERENCE: make peers"
	"$here/build.sh" flannel
	local cidr
	cidr=$(pod_cidr "$1")
	cp "$REFERENCE"/* "$bin/flannel" "$dir/$1/opt-cni/bin/"
	printf '%s\n' "FLANNEL_NETWORK=$POD_CIDR" "FLANNEL_SUBNET=${cidr%.*}.1/24" FLANNEL_MTU=1450 FLANNEL_IPMASQ=true >"$dir/$1/subnet.env"
	node_enter "$1" install -D "$dir/$1/subnet.env" /run/flannel/subnet.env
	put_conf "$1" 10-flannel.conflist <<-E
		{"cniVersion": "0.3.1", "name": "cbr0", "plugins": [
		  {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	E
	routes_to "$1"
}

# chain_flanneld NODE: flannel as kube-flannel's manifest installs it: its ConfigMap, its plugin, and its daemon, which is a
# process of the node here.
chain_flanneld() {
	[ -x "$REFERENCE/bridge" ] || die "the reference plugins are not in $REFERENCE: make peers"
	"$here/build.sh" flannel
	"$here/../flannel/build.sh"
	pod_cidr "$1" >/dev/null
	kc apply -f "$here/flannel.yaml" >&2
	cp "$REFERENCE"/* "$bin/flannel" "$dir/$1/opt-cni/bin/"
	kc -n kube-flannel get configmap kube-flannel-cfg -o 'jsonpath={.data.net-conf\.json}' >"$dir/net-conf.json"
	kc -n kube-flannel get configmap kube-flannel-cfg -o 'jsonpath={.data.cni-conf\.json}' | put_conf "$1" 10-flannel.conflist
	flanneld_start "$1"
	until_true 60 node_enter "$1" test -e /run/flannel/subnet.env || die "flanneld of $1 does not answer: see $dir/$1/log/flanneld.log"
}

# flanneld_start NODE: stops with the node; its PID is in the node's /run/flanneld.pid.
flanneld_start() {
	# shellcheck disable=SC2016 # for the inner shell
	start "$prefix-$1/system" "$dir/$1/log/flanneld.log" "$prefix-$1" nsenter -t "$(node_pid "$1")" -m -u -p -i -n -- env NODE_NAME="$1" \
		sh -c 'echo $$ >/run/flanneld.pid; exec "$@"' sh "$FLANNELD" --ip-masq --kube-subnet-mgr --kubeconfig-file="$pki/admin.kubeconfig" --net-config-path="$dir/net-conf.json"
}

# chain_constant NODE: a plugin that does nothing, also as loopback.
chain_constant() {
	(cd "$repo" && go build -trimpath -ldflags '-s -w' -o "$dir/$1/opt-cni/bin/constant" ./test/kube/constant) || die "the plugin that does nothing was not built"
	ln "$dir/$1/opt-cni/bin/constant" "$dir/$1/opt-cni/bin/loopback"
	put_conf "$1" 10-constant.conflist <<<'{"cniVersion": "1.0.0", "name": "constant", "plugins": [{"type": "constant"}]}'
}

# weft_up NODE...: installs weft as a user does, after loading the image on these nodes.
weft_up() {
	[ -f "$repo/bin/weft-image.tar" ] || die "weft's image is not there: make image"
	local n file=weft.yaml
	[ "$multus" = no ] || file=weft-multus.yaml
	for n; do node_load "$n" "$repo/bin/weft-image.tar"; done
	kc create -f "$repo/deploy/nad-crd.yaml" >&2
	kc apply -f "$repo/deploy/crds.yaml" >&2
	if [ $# = "$(node_names | wc -l)" ]; then
		kc apply -f "$repo/deploy/$file" >&2
	else
		kc label node "$@" weft=here >&2
		sed 's#^\( *\)kubernetes.io/os: linux$#&\n\1weft: here#' "$repo/deploy/$file" | kc apply -f - >&2
	fi
	kc -n kube-system rollout status daemonset/weft --timeout=180s >&2
	kc -n kube-system rollout status deployment/weft-controller --timeout=180s >&2
}

# Nodes route to pods; these routes are for the control plane and tests in its namespace.
control_routes() {
	local n
	for n in $(node_names); do
		inside "$prefix" ip route replace "$(pod_cidr "$n")" via "$(first_family "$(node_ip "$n")" "$(node_ip6 "$n")")"
		[ "$(families)" != both ] || inside "$prefix" ip route replace "$(kc get node "$n" -o 'jsonpath={.spec.podCIDRs[1]}')" via "$(node_ip6 "$n")"
	done
}

dns_up() { sed "s#@DNS_IP@#$(dns_ip)#; s#@IMAGE@#$IMAGE_COREDNS#" "$here/dns.yaml" | kc apply -f - >&2; }
