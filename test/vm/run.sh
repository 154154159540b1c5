#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh: runs the kernel tests that the host's kernel does not support, on a distribution's kernel in a VM.
#
#   make test-vm                 the tests named below, and those that "make test", "make test-e2e" and "make test-hostile" skipped because a feature is missing
#   RUN='TestVlan' make test-vm  these tests only             PKGS='internal/kernel/link …'  of these packages only
#   KERNEL=linux-image-cloud-amd64 make test-vm               another of Debian's kernels
#   BENCH=Flowtable PKGS=internal/kernel/fastpath make test-vm   benchmarks instead of tests; with ICOUNT=1 the VM's clock counts
#                                 instructions: a nanosecond is one
#   LIMIT=1800 MEM=3072           timeout in seconds; memory in MiB      KEEP=1  keeps the files
#
# It needs no root except to install missing packages. /dev/kvm is not used: the test VM behaves the same
# everywhere. The kernel's package is unpacked below ~/.cache/weft, never installed. A test that is skipped there
# because of a missing kernel feature counts as failed (WEFT_NO_SKIP). Exit code 0: all passed, 1: failures, 2: not run.
set -euo pipefail
cd "$(dirname "$0")/../.."

KERNEL=${KERNEL:-}
LIMIT=${LIMIT:-1800}
MEM=${MEM:-3072}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft
# The drivers' tests are run whole; of the other packages those tests whose names tell of a link type or feature that small
# kernels lack, and whatever the last "make test", "make test-e2e" and "make test-hostile" wrote into bin/skipped, bin/skipped-e2e and
# bin/skipped-hostile because a feature is missing.
WORDS='Dummy|I[Pp]vlan|IPVlan|V[Ll][Aa][Nn]|Vrf|VRF|S[Cc][Tt][Pp]|HostDevice|P[Cc][Ii]|DPDK|Wireguard|WireGuard|I[Pp][Ii][Pp]|Spoof|ClockJump|Flowtable'
WHOLE='^(test/vm|internal/kernel(/.*)?)$'
# An emulated CPU is ten times slower: tests that measure times are not run.
UNFIT='
internal/kernel TestAnyStateToAnyState
internal/kernel TestReleasedLinksAreGoneSoon
internal/kernel/nft TestManyAtOnce
internal/endpoint/attach TestGCOfMany
'
# These take a quarter of an hour there: they run if RUN names them.
LONG='
test/hostile TestFlowtable.*
'

say() { printf 'test-vm: %s\n' "$*"; }
die() {
	say "$*" >&2
	exit 2
}

# packages: those with tests to run.
packages() {
	local dir
	find internal test -name '*_test.go' -print0 | xargs -0 -r grep -l nettest | xargs -r -n1 dirname | sort -u | while read -r dir; do
		if [[ $dir =~ $WHOLE ]] || grep -qE "^func Test[A-Za-z0-9_]*($WORDS)" "$dir"/*_test.go ||
			grep -qs "^$dir Test[^ ]*: kernel: " bin/skipped bin/skipped-e2e bin/skipped-hostile; then
			echo "$dir"
		fi
	done
}

[ "$(uname -m)" = x86_64 ] || die "this script knows kernels and machines of amd64 only, this is $(uname -m)"
test/deps.sh vm
[ -x bin/weft ] || die "make build first"

# kernel: prints the directory with vmlinuz and modules.img of the newest kernel that apt offers (or, if apt fails, of the newest
# one in the cache).
kernel() {
	local meta pkg version dir
	for meta in ${KERNEL:-linux-image-6.12-cloud-amd64 linux-image-cloud-amd64}; do
		pkg=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -1)
		[ -z "$pkg" ] || break
	done
	if [ -z "$pkg" ]; then
		dir=$(ls -d "$cache"/vm-*/done 2>/dev/null | sort -V | tail -1)
		[ -n "$dir" ] || die "apt knows no kernel (tried ${meta}) and none is in $cache"
		dirname "$dir"
		return
	fi
	version=$(apt-cache show --no-all-versions "$pkg" | sed -n 's/^Version: //p' | head -1)
	dir=$cache/vm-$pkg-$version
	if [ ! -e "$dir/done" ]; then
		say "unpacking $pkg $version into $dir (once)" >&2
		unpack "$pkg" "$dir" >&2
	fi
	echo "$dir"
}

# unpack PACKAGE DIR: the kernel, and its modules as a file system, with the tables that modprobe reads.
unpack() {
	local pkg=$1 dir=$2 tmp
	mkdir -p "$cache"
	find "$cache" -maxdepth 1 -name 'vm-new-*' -mmin +60 -exec rm -rf {} + # of killed runs
	tmp=$(mktemp -d "$cache/vm-new-XXXXXX")
	scratch+=("$tmp")
	(cd "$tmp" && apt-get download -qq "$pkg" 2>/dev/null) || die "$pkg cannot be downloaded"
	dpkg-deb -x "$tmp"/*.deb "$tmp/deb"
	find "$tmp/deb/lib/modules" -name '*.ko.xz' -print0 | xargs -0 -r -n 64 xz -d
	busybox depmod -b "$tmp/deb" "$(basename "$tmp"/deb/lib/modules/*)"
	mke2fs -q -t ext4 -d "$tmp/deb/lib/modules" "$tmp/modules.img" 512M >/dev/null
	cp "$tmp"/deb/boot/vmlinuz-* "$tmp/vmlinuz"
	cp "$(find "$tmp/deb" -name virtio_blk.ko)" "$tmp/"
	rm -rf "$tmp/deb" "$tmp"/*.deb
	touch "$tmp/done"
	rm -rf "$dir"
	mv "$tmp" "$dir"
}

# chosen PKG BINARY: the -test.run pattern for a package, or nothing. Programs are not built to list tests.
chosen() {
	local pkg=$1 bin=$2 top
	if [ -n "${BENCH:-}" ]; then
		top=$("$bin" -test.list "$BENCH" | grep '^Benchmark' || true)
		[ -z "$top" ] || echo '^$'
		return
	fi
	if [ -n "${RUN:-}" ]; then
		top=$(WEFT_TEST_BIN=$PWD/bin WEFT_PROGRAMS=$PWD/bin "$bin" -test.list "$RUN" | grep '^Test' || true)
		[ -z "$top" ] || echo "$RUN"
		return
	fi
	if [[ $pkg =~ $WHOLE ]]; then
		echo .
		return
	fi
	{
		WEFT_TEST_BIN=$PWD/bin WEFT_PROGRAMS=$PWD/bin "$bin" -test.list "$WORDS" | grep '^Test' || true
		cat bin/skipped bin/skipped-e2e bin/skipped-hostile 2>/dev/null | sed -n "s|^$pkg \(Test[^: ]*\): kernel: .*|\1|p"|| true
	} | sort -u | awk '
		# A test with all its subtests makes the single ones of them needless.
		{ split($0, part, "/"); if (part[1] != $0 && part[1] in whole) next; if (part[1] == $0) whole[$0] = 1
		  gsub(/[].[*+?(){}|^$\\]/, "\\\\&"); gsub(/\//, "$/^"); printf "%s^%s$", sep, $0; sep = "|" }'
}

# programs DIR: copies the programs that tests execute from the host, with their libraries.
programs() {
	local root=$1 p path lib
	for p in ip bridge tc nft iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore \
		sh ping sysctl mount umount unshare nsenter strace ethtool conntrack etcd bash dnsmasq; do
		path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$p" || true)
		[ -n "$path" ] || continue
		echo "$path" "$(readlink -f "$path")"
	done | tr ' ' '\n' | sort -u >"$root/../programs"
	while read -r path; do
		file "$root" "$path"
	done <"$root/../programs"
	for lib in /usr/lib/*/xtables; do # the matches and targets of iptables, loaded by name
		[ ! -d "$lib" ] || { mkdir -p "$root$(dirname "$lib")" && cp -a "$lib" "$root$lib"; }
	done
	xargs -n1 ldd <"$root/../programs" 2>/dev/null | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p' | sort -u >"$root/../libs"
	while read -r lib; do
		file "$root" "$lib"
	done <"$root/../libs"
}

# file ROOT PATH: copies PATH to the same path below ROOT, following symbolic links one by one.
file() {
	local path=$2 dir next
	while :; do
		dir=$(readlink -f "$(dirname "$path")")
		mkdir -p "$1$dir"
		cp -P --remove-destination "$path" "$1$dir/" # a link of busybox there must not be written through
		[ -L "$path" ] || break
		next=$(readlink "$path")
		case $next in
		/*) path=$next ;;
		*) path=$dir/$next ;;
		esac
	done
}

# tests ROOT: the test binaries, each with its package's testdata, and the list of what to run.
tests() {
	local root=$1 pkg bin run unfit
	mkdir -p "$root/weft/test"
	: >"$root/weft/list"
	cp go.mod "$root/weft/"
	cp -r test/chains "$root/weft/test/"
	for pkg in ${PKGS:-$(packages)}; do
		bin=$root/weft/$pkg/$(basename "$pkg").test
		CGO_ENABLED=0 go test -c -ldflags '-s -w' -o "$bin" "./$pkg" >/dev/null || die "$pkg does not build"
		run=
		[ ! -e "$bin" ] || run=$(chosen "$pkg" "$bin")
		if [ -z "$run" ]; then
			rm -f "$bin"
			continue
		fi
		[ ! -d "$pkg/testdata" ] || cp -r "$pkg/testdata" "$root/weft/$pkg/"
		unfit=$(sed -n "s|^$pkg \(.*\)|\1|p" <<<"$UNFIT$([ -n "${RUN:-}" ] || echo "$LONG")" | paste -sd'|')
		printf '%s ^(%s)$ %s\n' "$pkg" "$unfit" "$run" >>"$root/weft/list"
	done
	[ -s "$root/weft/list" ] || die "no test is chosen"
	[ -z "${BENCH:-}" ] || echo "$BENCH" >"$root/weft/bench"
	# What tests of commands need: the programs, and the reference plugins where they are built already.
	cp -r bin "$root/weft/"
	[ ! -e "$cache/plugins-v1.9.1/.all" ] || cp -r "$cache/plugins-v1.9.1" "$root/weft/peers"
	[ ! -e "$cache/flannel-v0.28.9/flanneld" ] || cp -r "$cache/flannel-v0.28.9" "$root/weft/flannel"
	local earlier
	earlier=$(test/upgrade/build.sh --where)
	[ -z "$earlier" ] || cp -r "${earlier##*:}" "$root/weft/earlier" # the version before today's
}

# image DIR: builds the test VM's disks and initrd.
image() {
	local dir=$1 root=$1/root
	mkdir -p "$root"/{dev,proc,sys,run,tmp,etc,root,var/lib,lib/modules,usr/bin,usr/sbin,usr/lib,usr/lib64}
	rm -rf "$root/lib"
	ln -s usr/bin "$root/bin"
	ln -s usr/sbin "$root/sbin"
	ln -s usr/lib "$root/lib"
	ln -s usr/lib64 "$root/lib64"
	mkdir -p "$root/usr/lib/modules"
	busybox --list | while read -r p; do ln -sf busybox "$root/usr/bin/$p"; done
	cp --remove-destination "$(command -v busybox)" "$root/usr/bin/busybox"
	ln -s ../bin/busybox "$root/usr/sbin/modprobe"
	ln -s ../bin/busybox "$root/usr/sbin/poweroff"
	rm -f "$root"/usr/bin/{sh,ip,ping,sysctl,mount,umount,unshare,nsenter,strace,tc}
	programs "$root"
	printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	for p in protocols services ethertypes iproute2; do [ ! -e "/etc/$p" ] || cp -rL "/etc/$p" "$root/etc/"; done
	tests "$root"
	install -m 755 test/vm/init "$root/init"
	mke2fs -q -t ext4 -O ^has_journal -d "$root" "$dir/root.img" 2G >/dev/null
	mkdir "$dir/initrd"
	cp "$root/usr/bin/busybox" "$kernel/virtio_blk.ko" "$dir/initrd/"
	install -m 755 test/vm/initrd "$dir/initrd/init"
	(cd "$dir/initrd" && find . | cpio --quiet -o -H newc -R 0:0) >"$dir/initrd.img"
}

# boot DIR: runs the test VM until it powers off or times out. The console goes to DIR/console, the tests' output to
# DIR/out. It is killed with this script, also by SIGKILL. Its two CPUs share one thread: the kernel patches its own code (static
# keys), and with a thread per CPU QEMU sometimes executes a partially patched instruction, which causes a kernel oops
# (mptcp_net-next issue 471 is the same).
boot() {
	local dir=$1 pid i cpus=(-smp 2)
	[ -z "${ICOUNT:-}" ] || cpus=(-smp 1 -icount shift=0,sleep=off)
	: >"$dir/out"
	setpriv --pdeathsig KILL qemu-system-x86_64 -M q35 -accel tcg,thread=single -cpu max "${cpus[@]}" -m "$MEM" \
		-nodefaults -display none -no-reboot -device intel-iommu \
		-kernel "$kernel/vmlinuz" -initrd "$dir/initrd.img" -append "console=ttyS0 quiet panic=-1 intel_iommu=on no_timer_check weft.limit=$LIMIT" \
		-drive "file=$dir/root.img,format=raw,if=virtio,cache=unsafe" \
		-drive "file=$kernel/modules.img,format=raw,if=virtio,readonly=on" \
		-device virtio-serial-pci,romfile= -chardev "file,id=out,path=$dir/out" -device virtserialport,chardev=out,name=weft.out \
		-device virtio-rng-pci,romfile= \
		-netdev hubport,id=n0,hubid=0 -device virtio-net-pci,netdev=n0,addr=10.0,mac=52:54:00:77:65:01,romfile= \
		-netdev hubport,id=n1,hubid=0 -device virtio-net-pci,netdev=n1,addr=11.0,mac=52:54:00:77:65:02,romfile= \
		-serial "file:$dir/console" </dev/null 2>"$dir/qemu" &
	pid=$!
	machine=$pid
	for ((i = 0; i < (LIMIT + 30) * 5; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.2
	done
	if kill -0 "$pid" 2>/dev/null; then
		say "the machine did not end in $LIMIT seconds: killed"
		kill -KILL "$pid"
	fi
	wait "$pid" 2>/dev/null || true
	machine=
	sed '/hub 0 is not connected/d; s/^/qemu: /' "$dir/qemu"
	grep -E 'BUG:|Oops|WARNING: CPU' "$dir/console" | sed 's/^/test-vm: the kernel says: /' || true
}

scratch=()
machine=
finish() {
	[ -z "$machine" ] || kill -KILL "$machine" 2>/dev/null || true
	if [ -n "${KEEP:-}" ] && [ ${#scratch[@]} -gt 0 ]; then
		say "kept: ${scratch[0]}"
		scratch=("${scratch[@]:1}")
	fi
	rm -rf "${scratch[@]}"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'weft-vm-*' -mmin +60 -exec rm -rf {} + 2>/dev/null || true # of killed runs
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-vm-XXXXXX")
scratch+=("$work")
kernel >"$work/kernel"
kernel=$(cat "$work/kernel")
begin=$SECONDS
image "$work"
say "$(wc -l <"$work/root/weft/list") packages, kernel $(basename "$kernel"); built in $((SECONDS - begin)) s"
begin=$SECONDS
boot "$work"
code=0
test/vm/report.awk "$work/root/weft/list" "$work/out" || code=1
if ! grep -q '^weft-vm: end$' "$work/out"; then
	say "the machine ended before its tests did; the end of its console:"
	grep -nE -m1 'BUG:|Oops|Kernel panic' "$work/console" | sed 's/^/  first: line /' || true
	tail -80 "$work/console" | sed 's/^/  /'
	code=1
fi
say "ran for $((SECONDS - begin)) s"
exit $code
