# SPDX-License-Identifier: Apache-2.0
#
# The control plane: processes of the host in the namespace wk-NAME. To be sourced after names.sh.
#
# wk-NAME has two bridges that the nodes are connected to: br0 is their network, br1 is a second one without addresses (eth1 of
# the nodes), for pods with additional networks.

control_net() {
	ip netns add "$prefix"
	inside "$prefix" ip link set lo up
	local b
	for b in br0 br1; do
		inside "$prefix" ip link add $b type bridge
		inside "$prefix" ip link set $b up
	done
	! has_ipv4 || {
		inside "$prefix" ip addr add $CONTROL_IP/24 dev br0
		inside "$prefix" sysctl -qw net.ipv4.ip_forward=1
	}
	! has_ipv6 || {
		inside "$prefix" ip addr add $CONTROL_IP6/64 dev br0 nodad
		inside "$prefix" sysctl -qw net.ipv6.conf.all.forwarding=1
	}
}

# component NAME: starts one part of the control plane.
component() {
	local log=$dir/log args
	mkdir -p "$log" "$dir/etcd"
	case $1 in
	etcd)
		args=(etcd --name=e0 --data-dir="$dir/etcd" --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379
			--listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 --initial-cluster=e0=http://127.0.0.1:2380
			--unsafe-no-fsync --log-level=warn)
		;;
	apiserver)
		args=(kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --bind-address="$(first_family 0.0.0.0 ::)" --advertise-address="$(first_family $CONTROL_IP $CONTROL_IP6)"
			--service-cluster-ip-range="$(of_families $SERVICE_CIDR $SERVICE_CIDR6)" --allow-privileged --endpoint-reconciler-type=lease
			--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --enable-aggregator-routing
			--service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key"
			--client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key"
			--kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key"
			--kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP
			--requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy-client
			--requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User
			--proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key")
		;;
	controllers) # A dead node is detected in 16 s instead of 40 s, to speed up tests.
		args=(kube-controller-manager --kubeconfig="$pki/controllers.kubeconfig" --authentication-kubeconfig="$pki/controllers.kubeconfig"
			--authorization-kubeconfig="$pki/controllers.kubeconfig" --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/sa.key"
			--use-service-account-credentials --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key"
			--allocate-node-cidrs --cluster-cidr="$(of_families $POD_CIDR $POD_CIDR6)" --service-cluster-ip-range="$(of_families $SERVICE_CIDR $SERVICE_CIDR6)" --leader-elect=false
			--node-monitor-period=2s --node-monitor-grace-period=16s --bind-address=127.0.0.1)
		;;
	scheduler)
		args=(kube-scheduler --kubeconfig="$pki/scheduler.kubeconfig" --authentication-kubeconfig="$pki/scheduler.kubeconfig"
			--authorization-kubeconfig="$pki/scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1)
		;;
	*) die "the control plane has no '$1' (etcd, apiserver, controllers, scheduler)" ;;
	esac
	args[0]=$bin/${args[0]}
	start "$prefix/$1" "$log/$1.log" "$prefix" "${args[@]}"
	[ "$1" != apiserver ] || until_true 90 ready || { tail -20 "$log/apiserver.log" >&2; die "the API server is not ready"; }
}

ready() { [ "$(inside "$prefix" curl -s -m 5 --cacert "$pki/ca.crt" "https://127.0.0.1:6443/readyz")" = ok ]; }

# The controllers exit if the default roles are missing: they are created after the API server is ready.
control_up() {
	control_net
	local c
	for c in etcd apiserver controllers scheduler; do component $c; done
	until_true 60 kc get serviceaccount default -n default || die "the controllers make no service accounts: see $dir/log"
}

# component_stop NAME: with SIGKILL, because the API server waits long for its clients, and forever without etcd.
component_stop() { kill_group "$prefix/$1"; }
