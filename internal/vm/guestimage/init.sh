#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
#
# The init of the guest: devices, addresses, and a shell on the serial console for users and tests.
export PATH=/bin HOME=/ TERM=vt100
/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev 2>/dev/null
/bin/busybox --install -s /bin
exec </dev/ttyS0 >/dev/ttyS0 2>&1

# ACPI shutdown powers the VM off.
mkdir -p /etc/acpi/PWRF
printf '#!/bin/busybox sh\nsync\npoweroff -f\n' >/etc/acpi/PWRF/00000080
chmod +x /etc/acpi/PWRF/00000080
while read -r m; do insmod "/modules/$m" 2>/dev/null; done </modules/order
acpid -l /dev/null 2>/dev/null

ip link set lo up
echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad # no duplicate address detection
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
# Hot-plugged interfaces are configured, too.
uevent /nic >/dev/null 2>&1 &
for dev in /sys/class/net/eth*; do
	[ ! -e "$dev" ] || ACTION=add SUBSYSTEM=net INTERFACE=${dev##*/} /nic
done

# facts: prints the network configuration of the guest, for users and tests.
facts() {
	for dev in /sys/class/net/eth*; do
		dev=${dev##*/}
		echo "weft-guest: LINK $dev mac=$(cat "/sys/class/net/$dev/address") mtu=$(cat "/sys/class/net/$dev/mtu") carrier=$(cat "/sys/class/net/$dev/carrier" 2>/dev/null)"
	done
	ip -o addr show scope global | while read -r _ dev family addr _; do echo "weft-guest: ADDR $dev $family $addr"; done
	ip route show | while read -r line; do echo "weft-guest: ROUTE inet $line"; done
	ip -6 route show | grep '^default' | while read -r line; do echo "weft-guest: ROUTE inet6 $line"; done
}

# send ADDR PORT TEXT: sends a line and prints the reply.      answer PORT TEXT: replies to all connections until it is killed.
send() { echo "$3" | timeout 20 nc -w 10 "$1" "$2"; }
answer() {
	printf '#!/bin/busybox sh\nread -r said\necho "%s $said"\n' "$2" >"/run/answer$1"
	chmod +x "/run/answer$1"
	nc -ll -p "$1" -e "/run/answer$1" >/dev/null 2>&1 </dev/null &
}

for word in $(cat /proc/cmdline); do
	case $word in weft.answer=*) guest-tools answer "${word#*=}" guest >/dev/null 2>&1 </dev/null & ;; esac
done

echo "weft-guest: READY"
while :; do
	printf 'guest# '
	if ! read -r line; then
		sleep 1
		continue
	fi
	case $line in
	@*)
		id=${line%% *}
		echo "weft-guest: BEGIN ${id#@}"
		(eval "${line#* }") </dev/null
		echo "weft-guest: END ${id#@} $?"
		;;
	*) eval "$line" ;;
	esac
done
