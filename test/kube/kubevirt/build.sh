#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh [--where]: builds KubeVirt of the pinned release from its source, and the image that its five components run from, into the
# cache by version, without Docker, a registry or Bazel. KUBEVIRT_SOURCE is a repository of KubeVirt's, a URL or a directory.
# libvirt, QEMU and what else the components execute are packages of Debian, which are unpacked, not installed.
# --where prints the cache's directory.
#
# Each program is renamed to its place when it is complete, so that a build that was killed continues where it was.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
. "$here/versions.sh"
[ "${1-}" != --where ] || { echo "$KUBEVIRT_CACHE"; exit; }
source=${KUBEVIRT_SOURCE:-https://github.com/kubevirt/kubevirt}

say() { echo "kubevirt: $*" >&2; }

bin=$KUBEVIRT_CACHE/bin
mkdir -p "$bin"
exec 9>"$KUBEVIRT_CACHE/.lock"
flock -n 9 || { say "waiting for another build in $KUBEVIRT_CACHE"; flock 9; }

# What the image consists of, and Debian's development files for libnbd, which the image leaves out.
packages=(base-files bash dash coreutils findutils grep sed gawk tar gzip util-linux mount procps iproute2 nftables kmod acl curl
	ca-certificates libc-bin libnss-myhostname ncat libvirt-clients libvirt-daemon libvirt-daemon-common libvirt-daemon-driver-qemu
	libvirt-daemon-log qemu-system-x86 qemu-utils seabios passt xorriso libnbd0 libnbd-dev)
base=$KUBEVIRT_CACHE/base-$KUBEVIRT_DEBIAN-$(echo "${packages[@]}" | sha256sum | cut -c1-12).tar
if [ ! -e "$base" ]; then
	say "unpacking QEMU, libvirt and what they need from Debian $KUBEVIRT_DEBIAN (once, a minute)"
	TMPDIR=$KUBEVIRT_CACHE mmdebstrap --quiet --variant=extract --include="$(IFS=,; echo "${packages[*]}")" \
		"$KUBEVIRT_DEBIAN" "$base.new.tar" || { say "Debian's packages are not available"; exit 1; }
	mv "$base.new.tar" "$base"
fi

programs=(virt-operator virt-api virt-controller virt-exportproxy virt-handler virt-chroot virt-launcher virt-launcher-monitor virt-tail virt-probe
	virt-freezer virt-launcher/libvirt-hook-client virtctl)
# In a kernel without links of type dummy, virt-handler uses a bridge without ports instead: it parks a pod's address there. In others nothing
# is different.
edit='s/^\tif err := n\.adapter\.LinkAdd(link); err != nil {$/\terr := n.adapter.LinkAdd(link)\n\tif iface.TypeName == TypeDummy \&\& errors.Is(err, unix.EOPNOTSUPP) {\n\t\terr = n.adapter.LinkAdd(\&vishnetlink.Bridge{LinkAttrs: *link.Attrs()})\n\t}\n\tif err != nil {/'
missing=()
for p in "${programs[@]}"; do [ -e "$bin/${p##*/}" ] || missing+=("$p"); done
[ "$(cat "$KUBEVIRT_CACHE/.edit" 2>/dev/null)" = "$edit" ] || [[ " ${missing[*]} " = *" virt-handler "* ]] || missing+=(virt-handler)
parts=$KUBEVIRT_CACHE/parts # files of the source that the image and the installation need
if [ ${#missing[@]} -gt 0 ] || [ ! -e "$bin/container-disk" ] || [ ! -e "$parts" ]; then
	src=$KUBEVIRT_CACHE/src
	if [ ! -e "$src/.complete" ]; then
		say "fetching the source of $KUBEVIRT_VERSION from $source"
		rm -rf "$src"
		git init -q "$src"
		git -C "$src" fetch -q --depth 1 "$source" "refs/tags/$KUBEVIRT_VERSION" ||
			{ say "the source cannot be fetched: KUBEVIRT_SOURCE can be another repository of KubeVirt's, also a directory"; exit 1; }
		git -C "$src" checkout -q FETCH_HEAD
		touch "$src/.complete"
	fi
	cd "$src"

	# The libnbd of the image is linked to; libvirt is opened when the program runs.
	nbd=$KUBEVIRT_CACHE/sysroot
	rm -rf "$nbd" && mkdir "$nbd"
	tar -xf "$base" -C "$nbd" --wildcards './usr/include/libnbd.h' './usr/lib/*/libnbd.*'
	lib=$(dirname "$(echo "$nbd"/usr/lib/*/libnbd.so)")
	export CGO_ENABLED=1 GOFLAGS='-mod=vendor -buildvcs=false -trimpath' C_INCLUDE_PATH=$nbd/usr/include \
		PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$nbd CGO_LDFLAGS="-L$lib -Wl,--allow-shlib-undefined"
	unset GOWORK
	state=pkg/network/driver/nmstate/spec.go
	sed "$edit" "$state" >"$KUBEVIRT_CACHE/spec.go"
	! cmp -s "$state" "$KUBEVIRT_CACHE/spec.go" || { say "$state is not as expected: virt-handler would not work in a kernel without dummy links"; exit 1; }
	printf '{"Replace": {"%s": "%s"}}\n' "$src/$state" "$KUBEVIRT_CACHE/spec.go" >"$KUBEVIRT_CACHE/overlay.json"
	n=0
	for p in "${missing[@]}"; do
		n=$((n + 1))
		say "building ${p##*/} ($n of ${#missing[@]}) into $bin (once; 10 to 30 minutes for all of them)"
		${WEFT_NICE:-nice} go build -overlay "$KUBEVIRT_CACHE/overlay.json" -tags 'selinux libvirt_dlopen' -o "$bin/.new" \
			-ldflags "-s -w -X kubevirt.io/client-go/version.gitVersion=$KUBEVIRT_VERSION -X kubevirt.io/client-go/version.gitTreeState=clean" "./cmd/$p"
		mv "$bin/.new" "$bin/${p##*/}"
	done
	echo "$edit" >"$KUBEVIRT_CACHE/.edit"
	gcc -O2 -static -o "$bin/.new" cmd/container-disk-v2alpha/main.c
	mv "$bin/.new" "$bin/container-disk"
	rm -rf "$parts.new" && mkdir "$parts.new"
	cp manifests/generated/{kv-resource.yaml,kubevirt-priority-class.yaml,rbac-operator.authorization.k8s.yaml.in} \
		cmd/virt-launcher/{qemu,qemu.conf,virtqemud.conf,nsswitch.conf} cmd/virt-launcher/node-labeller/node-labeller.sh "$parts.new/"
	rm -rf "$parts" && mv "$parts.new" "$parts"
	rm -rf "$src" "$nbd"
fi

image=$KUBEVIRT_CACHE/image.tar
stamp=$({ basename "$base"; cat "$repo"/internal/oci/image.go "$here"/image/*.go; ls -l --time-style=+%s "$bin"; } | sha256sum | cut -c1-32)
if [ "$(cat "$KUBEVIRT_CACHE/.image" 2>/dev/null)" != "$stamp" ]; then
	say "writing the image $image"
	(cd "$repo" && env -u GOFLAGS CGO_ENABLED=0 go run -trimpath ./test/kube/kubevirt/image -base "$base" -programs "$bin" -parts "$parts" -tag "$KUBEVIRT_VERSION" -o "$image.new")
	mv "$image.new" "$image"
	echo "$stamp" >"$KUBEVIRT_CACHE/.image"
fi
