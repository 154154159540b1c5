#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
#
# Configures the network of the guest from a DHCP lease.
case $1 in
deconfig) ip -4 addr flush dev "$interface" ;;
bound | renew)
	[ -z "$mtu" ] || ip link set "$interface" mtu "$mtu"
	ip addr replace "$ip/$mask" dev "$interface"
	if [ -n "$staticroutes" ]; then
		set -- $staticroutes
		while [ $# -ge 2 ]; do
			if [ "$2" = 0.0.0.0 ]; then ip route replace "$1" dev "$interface"; else ip route replace "$1" via "$2" dev "$interface"; fi
			shift 2
		done
	else
		for r in $router; do ip route replace default via "$r" dev "$interface"; done
	fi
	[ -z "$hostname" ] || hostname "$hostname"
	: >/etc/resolv.conf
	[ -z "$search$domain" ] || echo "search ${search:-$domain}" >>/etc/resolv.conf
	for s in $dns; do echo "nameserver $s" >>/etc/resolv.conf; done
	echo "weft-guest: LEASE $interface $ip/$mask router=$router mtu=$mtu dns=$dns hostname=$hostname" >/dev/ttyS0
	;;
bound6)
	ip -6 addr replace "$ip/128" dev "$interface"
	n=0 # the default route comes from a router advertisement
	until ip -6 route show | grep -q "^default.* dev $interface" || [ $n -ge 150 ]; do
		usleep 200000
		n=$((n + 1))
	done
	echo "weft-guest: LEASE6 $interface $ip dns=$dns" >/dev/ttyS0
	;;
esac
