#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The guest's first process: its network by the NoCloud disk, QEMU's agent, and a login on the serial console.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 NO_COLOR=1 INPUTRC=/etc/inputrc
mkdir -p /dev/pts /run /tmp /seed /root /home/fedora
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t devpts devpts /dev/pts
case $(cat /proc/cmdline) in *weft.like=fedora*) like=fedora ;; *weft.like=cirros*) like=cirros ;; *) like=localhost ;; esac
hostname $like
ip link set lo up
for dev in /dev/vd?; do
	[ "$(blkid -o value -s LABEL "$dev")" = cidata ] && mount -t iso9660 -o ro "$dev" /seed && break
done
# As on other systems the agent starts when the network is there: KubeVirt takes the addresses of a guest from what the agent reports.
guest seed /seed >/run/seed.log 2>&1
[ $like != fedora ] || for link in /sys/class/net/*; do ip link set "${link##*/}" up; done # as NetworkManager does
for port in /sys/class/virtio-ports/*; do
	case $(cat /proc/cmdline) in *weft.like=plain* | *weft.like=cirros*) break ;; esac
	[ "$(cat "$port/name" 2>/dev/null)" != org.qemu.guest_agent.0 ] || { qemu-ga -m virtio-serial -p "/dev/${port##*/}" >/run/agent.log 2>&1 & }
done
while :; do setsid -c /sbin/login-$like </dev/ttyS0 >/dev/ttyS0 2>&1; sleep 1; done
