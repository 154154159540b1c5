# SPDX-License-Identifier: Apache-2.0
#
# A node: the network namespace wk-NAME-nodeN, and namespaces for mounts, processes, host name and IPC, in which containerd,
# kubelet and kube-proxy run. Inside, paths are the default ones; the node's directories are mounted over them. To be sourced after
# names.sh.

node_net() {
	local ns=$prefix-$1
	ip netns add "$ns"
	inside "$ns" ip link set lo up
	inside "$prefix" ip link add "$1-0" type veth peer name eth0 netns "$ns"
	inside "$prefix" ip link add "$1-1" type veth peer name eth1 netns "$ns"
	inside "$prefix" ip link set "$1-0" master br0 up
	inside "$prefix" ip link set "$1-1" master br1 up
	inside "$ns" ip link set eth0 up
	inside "$ns" ip link set eth1 up
	! has_ipv4 || {
		inside "$ns" ip addr add "$(node_ip "$1")/24" dev eth0
		inside "$ns" ip route add default via $CONTROL_IP
		inside "$ns" sysctl -qw net.ipv4.ip_forward=1
	}
	! has_ipv6 || {
		inside "$ns" ip addr add "$(node_ip6 "$1")/64" dev eth0 nodad
		inside "$ns" ip route add default via $CONTROL_IP6
		inside "$ns" sysctl -qw net.ipv6.conf.all.forwarding=1
	}
}

node_files() {
	local d=$dir/$1
	mkdir -p "$d"/{log,lib-kubelet,lib-containerd,lib-cni,lib-weft,lib-kubevirt,node-labeller,log-pods,log-containers,etc-cni/net.d,opt-cni/bin,etc-containerd}
	echo "nameserver $(first_family $CONTROL_IP $CONTROL_IP6)" >"$d/resolv.conf" # for pods with dnsPolicy Default; no server runs there
	cat >"$d/etc-containerd/config.toml" <<-E
		version = 3
		root = "/var/lib/containerd"
		state = "/run/containerd"
		disabled_plugins = ["io.containerd.nri.v1.nri","io.containerd.snapshotter.v1.btrfs","io.containerd.snapshotter.v1.devmapper","io.containerd.snapshotter.v1.zfs","io.containerd.snapshotter.v1.erofs","io.containerd.snapshotter.v1.blockfile","io.containerd.internal.v1.tracing","io.containerd.tracing.processor.v1.otlp"]
		[plugins."io.containerd.cri.v1.images"]
		  snapshotter = "overlayfs"
		  [plugins."io.containerd.cri.v1.images".pinned_images]
		    sandbox = "$IMAGE_PAUSE"
		[plugins."io.containerd.cri.v1.runtime"]
		  disable_apparmor = true
		  restrict_oom_score_adj = true
		  [plugins."io.containerd.cri.v1.runtime".containerd]
		    default_runtime_name = "runc"
		    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
		      runtime_type = "io.containerd.runc.v2"
		      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
		        SystemdCgroup = false
		  [plugins."io.containerd.cri.v1.runtime".cni]
		    bin_dirs = ["/opt/cni/bin"]
		    conf_dir = "/etc/cni/net.d"
	E
	cat >"$d/kubelet.yaml" <<-E
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$pki/ca.crt"}}
		authorization: {mode: Webhook}
		tlsCertFile: "$pki/$1.crt"
		tlsPrivateKeyFile: "$pki/$1.key"
		cgroupDriver: cgroupfs
		cgroupRoot: /$prefix-$1
		failCgroupV1: false
		failSwapOn: false
		clusterDNS: ["$(dns_ip)"]
		clusterDomain: cluster.local
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		resolvConf: "$d/resolv.conf"
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
		nodeStatusUpdateFrequency: 4s
		makeIPTablesUtilChains: false
		registerNode: true
		maxPods: $(cat "$dir/max-pods")
		serializeImagePulls: false
	E
	cat >"$d/proxy.yaml" <<-E
		apiVersion: kubeproxy.config.k8s.io/v1alpha1
		kind: KubeProxyConfiguration
		mode: $(cat "$dir/proxy")
		clusterCIDR: $(of_families $POD_CIDR $POD_CIDR6)
		hostnameOverride: $1
		clientConnection: {kubeconfig: "$pki/proxy.kubeconfig"}
		conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
		metricsBindAddress: 127.0.0.1:10249
	E
}

# node_start NAME: boots the node; only its files persist.
node_start() {
	node_net "$1"
	node_files "$1"
	group "$prefix-$1/system"
	# The first process stays outside of the other hierarchies until node-init puts itself there.
	start "$prefix-$1/system" "$dir/$1/log/init.log" "$prefix-$1" \
		env -i PATH="$bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root LANG=C.UTF-8 WEFT_KUBE_STATE="$top" \
		unshare --mount --uts --pid --ipc --fork --kill-child --mount-proc --propagation private \
		bash "$here/node-init.sh" "$name" "$1"
}

# node_kill NAME: as a power failure.
node_kill() {
	kill_group "$prefix-$1"
	drop_group "$prefix-$1"
	ip netns del "$prefix-$1" 2>/dev/null || true
}

# node_pid NAME: the node's first process.
node_pid() {
	local p
	for p in $(cat "$(counting)/$prefix-$1/system/cgroup.procs" 2>/dev/null); do
		[ "$(awk '/^NSpid:/{print NF==3 && $3==1}' "/proc/$p/status" 2>/dev/null)" != 1 ] || { echo "$p"; return; }
	done
	die "$1 of cluster $name is not running"
}

# node_enter NAME COMMAND...
node_enter() {
	local p
	p=$(node_pid "$1"); shift
	nsenter -t "$p" -m -u -p -i -n -- env PATH="$bin:$PATH" "$@"
}

# node_load NAME FILE...: images into the node's runtime.
node_load() {
	local n=$1 f; shift
	for f; do node_enter "$n" ctr -n k8s.io images import - <"$f" >>"$dir/$n/log/import.log" 2>&1 || die "$n does not take the image $f: see $dir/$n/log/import.log"; done
}
