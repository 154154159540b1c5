#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# lease6 CARD: a DHCPv6 client in the background.
ip link set "$1" up
exec dhclient -6 -nw "$1" >/run/dhclient6."$1".log 2>&1
