#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# networking restart: asks by DHCP on the cards for which /etc/network/interfaces says so, as Alpine's service does.
while read -r word card family method rest; do
	[ "$word $family $method" = "iface inet dhcp" ] || continue
	pid=/var/run/udhcpc.$card.pid
	[ ! -e "$pid" ] || kill "$(cat "$pid")" 2>/dev/null
	ip -4 address flush dev "$card" && /sbin/lease4 "$card" || exit 1
done </etc/network/interfaces
