#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The initrd's init: mounts the disk's root file system below one in memory, and executes its init.
busybox mkdir -p /proc /sys /dev /iso /rw /new
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
while read -r m; do busybox insmod "/modules/$m"; done </modules/order
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	for dev in /dev/vd? /dev/sd? /dev/sr?; do
		[ -b "$dev" ] && busybox mount -t iso9660 -o ro "$dev" /iso 2>/dev/null || continue
		[ ! -e /iso/root/sbin/start ] || break 2
		busybox umount /iso
	done
	busybox sleep 1
done
busybox mount -t tmpfs tmpfs /rw
busybox mkdir /rw/upper /rw/work
busybox mount -t overlay -o lowerdir=/iso/root,upperdir=/rw/upper,workdir=/rw/work overlay /new
for d in proc sys dev; do busybox mount --move /$d /new/$d; done
exec busybox switch_root /new /sbin/start
