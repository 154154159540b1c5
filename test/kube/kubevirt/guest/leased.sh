#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# leased EVENT: configures what udhcpc has got.
case $1 in
deconfig)
	ip -4 address flush dev "$interface"
	;;
bound | renew)
	[ -z "$mtu" ] || ip link set "$interface" mtu "$mtu"
	ip -4 address replace "$ip/$mask" dev "$interface"
	set -- $staticroutes
	[ $# -gt 1 ] || set -- 0.0.0.0/0 ${router%% *}
	while [ $# -gt 1 ]; do
		if [ "$2" = 0.0.0.0 ]; then ip route replace "$1" dev "$interface"; else ip route replace "$1" via "$2" dev "$interface" onlink; fi
		shift 2
	done
	[ -z "$hostname" ] || hostname "${hostname%%.*}"
	{
		cat /run/resolv.seed 2>/dev/null
		[ -z "$search$domain" ] || grep -q search /run/resolv.seed 2>/dev/null || echo "search ${search:-$domain}"
		for s in $dns; do echo "nameserver $s"; done
	} >/etc/resolv.conf
	;;
esac
