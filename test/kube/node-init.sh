#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-init.sh CLUSTER NODE: the first process of a node. When it exits, all processes of the node are killed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
name=$1 node=$2
. "$here/lib/versions.sh"
. "$here/lib/names.sh"
own=$dir/$node

hostname "$node"
mount --make-rprivate /
# Copies of the host's namespace files would keep other namespaces alive.
awk '$3=="nsfs"{print $2}' /proc/mounts | xargs -r umount -l 2>/dev/null || true
# A /sys of this network namespace, with the cgroups.
mkdir -p "$own/sys"
mount -t sysfs sysfs "$own/sys"
mount --rbind /sys/fs/cgroup "$own/sys/fs/cgroup"
mount --rbind "$own/sys" /sys
mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
mount -t tmpfs -o mode=755 tmpfs /run
# The kubelet sets sysctls of the whole host; bind-mounted files with the right values replace them.
hide() { # hide PATH CONTENT
	mkdir -p "/run/over/${1%/*}"
	echo "$2" >"/run/over/$1"
	mount --bind "/run/over/$1" "/$1"
}
hide proc/sys/vm/overcommit_memory 1
hide proc/sys/vm/panic_on_oom 0
hide proc/sys/kernel/panic 10
hide proc/sys/kernel/panic_on_oops 1
hide proc/sys/kernel/keys/root_maxkeys 1000000
hide proc/sys/kernel/keys/root_maxbytes 25000000
# Each start is a boot, and each node has a machine ID.
hide proc/sys/kernel/random/boot_id "$(cat /proc/sys/kernel/random/uuid)"
[ -s "$own/machine-id" ] || tr -d - </proc/sys/kernel/random/uuid >"$own/machine-id"
[ ! -e /etc/machine-id ] || mount --bind "$own/machine-id" /etc/machine-id

mkdir -p /run/netns /run/containerd
[ ! -e "$own/subnet.env" ] || install -D "$own/subnet.env" /run/flannel/subnet.env # as flannel's daemon does
for pair in lib-kubelet=/var/lib/kubelet lib-containerd=/var/lib/containerd lib-cni=/var/lib/cni lib-weft=/var/lib/weft log-pods=/var/log/pods \
	lib-kubevirt=/var/lib/kubevirt node-labeller=/var/lib/kubevirt-node-labeller log-containers=/var/log/containers etc-cni=/etc/cni opt-cni=/opt/cni etc-containerd=/etc/containerd; do
	mkdir -p "${pair#*=}"
	mount --bind "$own/${pair%%=*}" "${pair#*=}"
done
mount --make-rshared /

while read -r h; do echo $$ >"$h/$prefix-$node/system/cgroup.procs"; done < <(hierarchies)

containerd --config /etc/containerd/config.toml >>"$own/log/containerd.log" 2>&1 &
until_true 30 ctr version || die "containerd does not answer"
if [ ! -e "$own/images" ]; then # they are kept across restarts
	for f in "$KUBE_IMAGES"/*.tar; do ctr -n k8s.io images import "$f" >>"$own/log/import.log" 2>&1 || die "image $f"; done
	touch "$own/images"
fi
kubelet --config="$own/kubelet.yaml" --kubeconfig="$pki/$node.kubeconfig" --hostname-override="$node" --node-ip="$(of_families "$(node_ip "$node")" "$(node_ip6 "$node")")" >>"$own/log/kubelet.log" 2>&1 &
[ "$(cat "$dir/proxy")" = none ] || kube-proxy --config="$own/proxy.yaml" >>"$own/log/kube-proxy.log" 2>&1 &
touch /run/started
while :; do wait -n || true; sleep 1; done # reap orphans
