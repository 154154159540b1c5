#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Debian's DHCP client with the option --request-options, which Fedora's has.
args=()
while [ $# -gt 0 ]; do
	case $1 in
	--request-options)
		echo "request ${2//,/, };" >/run/dhclient.conf
		args+=(-cf /run/dhclient.conf)
		shift
		;;
	*) args+=("$1") ;;
	esac
	shift
done
exec /usr/sbin/dhclient.debian "${args[@]}"
