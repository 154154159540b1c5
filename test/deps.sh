#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh demo|test|docker|ui|race|bench|vm|kube|kubevirt: installs the Debian packages that the target needs and this host lacks, and prints them.
# It changes nothing if all are installed. Only the installation needs root.
set -euo pipefail

want=${1:-test}
missing=()
need() { # need PROGRAM PACKAGE
	command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] || missing+=("$2")
}
# vms: packages to run VMs and to build their guest.
vms() {
	need qemu-system-x86_64 qemu-system-x86
	need busybox busybox-static
	need xz xz-utils
}
need ip iproute2
need nft nftables
need ping iputils-ping
need unshare util-linux
need mount mount
case $want in
ui)
	command -v chromium >/dev/null || need chromium-headless-shell chromium-headless-shell
	;;
race)
	need gcc gcc
	[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
	need nft nftables
	need dnsmasq dnsmasq-base
	need etcd etcd-server
	need firewalld firewalld
	need dbus-daemon dbus-daemon
	;;
demo)
	if [ "${VM:-1}" != 0 ]; then vms; fi
	;;
test)
	vms
	need virsh libvirt-clients
	need libvirtd libvirt-daemon
	[ -e "$(echo /usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so)" ] || missing+=(libvirt-daemon-driver-qemu)
	need strace strace
	need sysctl procps
	need conntrack conntrack
	need iptables iptables # the reference portmap's
	need ipset ipset       # of Calico
	need firewalld firewalld
	need dbus-daemon dbus-daemon
	need dnsmasq dnsmasq-base # a real DHCP server
	need etcd etcd-server # flannel's datastore
	need bird bird2       # a BGP speaker
	# Another one. Where systemd runs, the package starts a daemon that writes routes: that is the host's owner's to decide.
	[ -x /usr/lib/frr/bgpd ] || [ -d /run/systemd/system ] || missing+=(frr)
	need busybox busybox-static # a guest's DHCP client
	need xorrisofs xorriso # seed images of cloud-init
	# Optional: clang, llvm and libbpf-dev, with which a test compiles internal/kernel/fastpath/fastpath.c again (clang 14).
	;;
docker)
	# Where systemd runs, the package starts a daemon, which changes the host's packet filter: that is its owner's to decide.
	if [ -d /run/systemd/system ] && ! command -v dockerd >/dev/null; then
		echo "deps: dockerd is missing, and its package would start a daemon on this host: apt-get install docker.io" >&2
		exit 1
	fi
	need dockerd docker.io
	need docker docker.io
	need docker-compose docker-compose
	;;
bench)
	need strace strace
	[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
	;;
vm)
	need qemu-system-x86_64 qemu-system-x86
	need busybox busybox-static
	need cpio cpio
	need mke2fs e2fsprogs
	need xz xz-utils
	need setpriv util-linux
	need iptables iptables
	need dnsmasq dnsmasq-base # a real DHCP server
	;;
kube)
	need runc runc
	need iptables iptables
	need conntrack conntrack
	need socat socat # kubectl port-forward
	need openssl openssl
	need sysctl procps
	need ps procps
	# What the images of the test cluster are put together from.
	need curl curl
	need wget wget
	need busybox busybox-static
	need dig bind9-dnsutils
	need dash dash
	[ -x /bin/nc.openbsd ] || missing+=(netcat-openbsd)
	;;
kubevirt)
	vms # the guest
	need gcc gcc
	[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
	need pkg-config pkg-config
	need mmdebstrap mmdebstrap
	need git git
	need xorriso xorriso # disks of the guests of its functional tests
	need cpio cpio
	;;
*)
	echo "deps: '$want' is no target (give demo, test, docker, ui, race, bench, vm, kube or kubevirt)" >&2
	exit 2
	;;
esac
# br_netfilter is a module that is not loaded automatically. Without it a few tests are skipped.
if [ "$want" = test ] && [ ! -e /proc/sys/net/bridge ]; then
	echo "deps: loading the kernel's module br_netfilter: policies of guests on a bridge are tested with it"
	if [ "$(id -u)" -eq 0 ]; then modprobe=modprobe; else modprobe="sudo -n modprobe"; fi
	$modprobe br_netfilter 2>/dev/null || echo "deps: it cannot be loaded here: the tests that need it are skipped"
fi
[ ${#missing[@]} -gt 0 ] || exit 0

echo "deps: installing what $want needs and this host lacks: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
	echo "deps: this is no Debian; install these by hand: ${missing[*]}" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
	sudo=$(command -v sudo) || {
		echo "deps: installing packages needs root; run: apt-get install ${missing[*]}" >&2
		exit 1
	}
fi
export DEBIAN_FRONTEND=noninteractive
# A fresh host often installs its own upgrades meanwhile: apt waits for the locks of packages by itself, but not for that of the lists.
for try in {1..60}; do
	why=$($sudo apt-get update -qq 2>&1) && break
	if [[ $why != *"Could not get lock"* ]] || [ "$try" = 60 ]; then
		echo "deps: the lists of packages cannot be updated: $why" >&2
		exit 1
	fi
	[ "$try" != 1 ] || echo "deps: waiting for another apt, up to five minutes"
	sleep 5
done
$sudo apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null
echo "deps: installed"
