#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# lease4 CARD: a DHCP client that stays. KubeVirt's tests send signals to it by Alpine's file.
ip link set "$1" up
exec busybox udhcpc -b -i "$1" -p "/var/run/udhcpc.$1.pid" -s /sbin/leased -O search -O mtu -O staticroutes >/run/udhcpc."$1".log 2>&1
