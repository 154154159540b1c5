#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# guest/build.sh OUT: builds the guests that KubeVirt's functional tests boot, as images under the names that the tests know, into the
# archive OUT. In place of the disks of Alpine, CirrOS and Fedora they have Debian's packages, unpacked, not installed: a small initrd, and a
# root file system on the disk, which is an ISO that a BIOS boots.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../../.." && pwd)
. "$here/../versions.sh"
out=$(realpath "${1:?guest/build.sh OUT: the archive}")

say() { echo "kubevirt: $*" >&2; }

packages=(base-files bash dash coreutils util-linux busybox-static kmod hostname sed grep gawk procps iproute2 iputils-ping ncat isc-dhcp-client
	curl ca-certificates python3 qemu-guest-agent libc-bin libnss-myhostname linux-image-cloud-amd64 isolinux syslinux-common findutils gzip)
base=$KUBEVIRT_CACHE/guest-$KUBEVIRT_DEBIAN-$(echo "${packages[@]}" | sha256sum | cut -c1-12).tar
if [ ! -e "$base" ]; then
	say "unpacking the guests' packages of Debian $KUBEVIRT_DEBIAN (once, half a minute)"
	TMPDIR=$KUBEVIRT_CACHE mmdebstrap --quiet --variant=extract --include="$(IFS=,; echo "${packages[*]}")" "$KUBEVIRT_DEBIAN" "$base.new.tar"
	mv "$base.new.tar" "$base"
fi
work=$(mktemp -d "$KUBEVIRT_CACHE/.guest.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/iso" "$work/iso/boot" "$work/iso/root" "$work/initrd"
root=$work/iso/root
tar -xf "$base" -C "$root" --exclude='./dev/*' --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
	--exclude='./usr/share/info/*' --exclude='./var/lib/dpkg/*' --exclude='./var/cache/*' --exclude='./var/lib/apt/*'

# The boot loader, the kernel, and an initrd with the modules that a guest on virtual hardware needs.
kernel=$(basename "$root"/usr/lib/modules/*)
mv "$root/boot/vmlinuz-$kernel" "$work/iso/boot/vmlinuz"
mkdir -p "$work/iso/isolinux" "$work/initrd/modules" "$work/initrd/bin"
cp "$root/usr/lib/ISOLINUX/isolinux.bin" "$root/usr/lib/syslinux/modules/bios/ldlinux.c32" "$work/iso/isolinux/"
cp "$root/usr/lib/ISOLINUX/isohdpfx.bin" "$work/"
cp "$root/usr/bin/busybox" "$work/initrd/bin/"
ln -s busybox "$work/initrd/bin/sh"
install -m 755 "$here/boot.sh" "$work/initrd/init"
chroot "$root" depmod "$kernel"
for m in virtio_pci virtio_blk virtio_net virtio_console virtio_rng isofs overlay e1000 e1000e nls_utf8 dummy; do
	chroot "$root" modprobe -S "$kernel" --show-depends "$m" 2>/dev/null | awk '$1 == "insmod" { print $2 }' || true # some are built in
done | awk '!seen[$0]++' | while read -r file; do
	name=$(basename "$file")
	case $name in
	*.xz) xz -dc "$root$file" >"$work/initrd/modules/${name%.xz}" && echo "${name%.xz}" ;;
	*) cp "$root$file" "$work/initrd/modules/" && echo "$name" ;;
	esac
done >"$work/initrd/modules/order"
(cd "$work/initrd" && find . | LC_ALL=C sort | cpio --quiet -o -H newc | gzip -1) >"$work/iso/boot/initrd"
rm -rf "$root/usr/lib/modules" "$root"/boot/* "$root/usr/lib/ISOLINUX" "$root/usr/lib/syslinux"

# What the packages' scripts would have made, and the tests' tools. Without its compiled modules an emulated Python is a server after ten
# seconds, and the tests do not wait so long.
chroot "$root" sh -c 'python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3.*' || { say "Python's modules cannot be compiled"; exit 1; }
mkdir -p "$root/run" "$root/tmp" "$root/proc" "$root/sys" "$root/dev" "$root/root" "$root/home/fedora"
printf 'root:x:0:0:root:/root:/bin/bash\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
printf 'set enable-bracketed-paste off\n' >"$root/etc/inputrc"
printf 'hosts: files dns myhostname\n' >"$root/etc/nsswitch.conf"
[ -e "$root/bin/sh" ] || ln -s dash "$root/usr/bin/sh"
rm -rf "$root/var/run" && ln -s ../run "$root/var/run"
for f in start login-localhost login-cirros login-fedora sudo lease4 lease6 leased; do install -m 755 "$here/$f.sh" "$root/usr/sbin/$f"; done
mkdir -p "$root/etc/udhcpc" "$root/etc/network" "$root/etc/init.d"
ln -s /sbin/leased "$root/etc/udhcpc/default.script" # where busybox' client looks by default
install -m 755 "$here/networking.sh" "$root/etc/init.d/networking"
(cd "$repo" && env -u GOFLAGS CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$root/usr/bin/guest" ./test/kube/kubevirt/guest)
ln -s guest "$root/usr/bin/nc"
ln -s ../bin/busybox "$root/usr/sbin/arping"
mv "$root/usr/sbin/dhclient" "$root/usr/sbin/dhclient.debian"
install -m 755 "$here/dhclient.sh" "$root/usr/sbin/dhclient"
for p in wget udhcpc vi awk; do [ -e "$root/usr/bin/$p" ] || ln -s busybox "$root/usr/bin/$p"; done

images=()
for like in plain alpine cirros fedora; do # plain is Alpine's own image, which has no agent, as CirrOS
	printf '%s\n' 'default guest' 'prompt 0' 'label guest' '  kernel /boot/vmlinuz' '  initrd /boot/initrd' \
		"  append console=ttyS0 quiet panic=-1 no_timer_check net.ifnames=0 weft.like=$like" >"$work/iso/isolinux/isolinux.cfg"
	xorriso -as mkisofs -quiet -R -D -V weftguest -isohybrid-mbr "$work/isohdpfx.bin" -b isolinux/isolinux.bin -c isolinux/boot.cat \
		-no-emul-boot -boot-load-size 4 -boot-info-table -o "$work/$like.img" "$work/iso" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
	images+=("$like")
done
say "the guests' disks: $(du -h --apparent-size "$work"/*.img | awk '{ print $1, $2 }' | sed "s,$work/,," | tr '\n' ' ')"
(cd "$repo" && env -u GOFLAGS CGO_ENABLED=0 go run -trimpath ./test/kube/kubevirt/guest/disks -tag "$KUBEVIRT_VERSION" -o "$out.new" \
	alpine-container-disk-demo="$work/plain.img" alpine-with-test-tooling-container-disk="$work/alpine.img" \
	cirros-container-disk-demo="$work/cirros.img" fedora-with-test-tooling-container-disk="$work/fedora.img")
mv "$out.new" "$out"
