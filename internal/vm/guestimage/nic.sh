#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs for each uevent: starts the DHCP clients of a network interface that was added, and stops them when it is removed.
[ "$SUBSYSTEM" = net ] || exit 0
case $INTERFACE in eth*) ;; *) exit 0 ;; esac
mark=/run/nic.$INTERFACE
case $ACTION in
add)
	mkdir "$mark" 2>/dev/null || exit 0
	echo 0 >"/proc/sys/net/ipv6/conf/$INTERFACE/accept_dad"
	ip link set "$INTERFACE" up
	udhcpc -i "$INTERFACE" -f -s /lease -t 8 -T 1 -A 2 -O mtu -O staticroutes -O hostname -O search >/dev/null 2>&1 &
	echo $! >"$mark/udhcpc"
	[ ! -x /bin/guest-tools ] || guest-tools dhcp6 "$INTERFACE" /lease >/dev/null 2>&1 &
	echo $! >"$mark/dhcp6"
	;;
remove)
	kill $(cat "$mark"/*) 2>/dev/null
	rm -r "$mark"
	;;
esac
exit 0
