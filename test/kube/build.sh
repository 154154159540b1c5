#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh [kube] [containerd] [coredns] [agnhost] [upstream] [npa] [flannel] [images] [cached]: builds the programs of the test cluster, once, into
# the cache by version, without images, registries or Docker. Without arguments: all except other projects' suites (upstream, npa) and flannel. The first build of
# Kubernetes takes 10 to 20 minutes on two CPUs; concurrent calls wait for it. "cached" builds only images, and fails if anything
# else would be built.
#
# A program is built at a temporary path and renamed, with a checksum of its sources, so that a killed build leaves no partial
# program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib/versions.sh"
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The checksum of a program's sources and flags.
sum() { # sum WORD FILE...
	{ echo "$1" "$(go version)"; shift; cat "$@"; } | sha256sum | cut -c1-32
}

# build NAME STAMP DIR COMMAND...: COMMAND writes files to $out, which are renamed into DIR; skipped if DIR is up to date.
build() {
	local name=$1 stamp=$2 dir=$3; shift 3
	[ "$(cat "$dir/.$name" 2>/dev/null)" != "$stamp" ] || return 0
	[ $building = yes ] || { echo "kube: $name is not in $dir" >&2; exit 1; }
	mkdir -p "$dir"
	exec 9>"$dir/.lock"
	flock -n 9 || { echo "kube: waiting for another build in $dir"; flock 9; }
	if [ "$(cat "$dir/.$name" 2>/dev/null)" != "$stamp" ]; then
		echo "kube: building $name into $dir (once)"
		out=$(mktemp -d "$dir/.new.XXXXXX")
		if ! "$@" || ! mv -f "$out"/* "$dir/"; then
			rm -rf "$out"
			echo "kube: $name was not built" >&2
			exit 1
		fi
		rmdir "$out"
		echo "$stamp" >"$dir/.$name"
	fi
	exec 9>&-
}

go_build() { (cd "$here/$1" && shift && ${WEFT_NICE:-nice} go build -trimpath "$@"); }

kubeall() {
	local v=k8s.io/component-base/version minor=${KUBE_VERSION#v1.}
	go_build kubeall -ldflags "-s -w -X $v.gitVersion=$KUBE_VERSION -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean -X $v.gitCommit=unknown" -o "$out/kubeall" . || return
	local c
	for c in etcd kubectl kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy; do ln -s kubeall "$out/$c"; done
}

containerd() {
	local at=github.com/containerd/containerd/v2/cmd
	go_build containerd -tags 'no_btrfs no_zfs no_devmapper' -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$CONTAINERD_VERSION" \
		-o "$out/" $at/containerd $at/containerd-shim-runc-v2 $at/ctr
}

coredns() { go_build coredns -ldflags '-s -w' -o "$out/coredns" .; }
agnhost() { go_build upstream -ldflags '-s -w' -o "$out/agnhost" k8s.io/kubernetes/test/images/agnhost; }
upstream() { (cd "$here/upstream" && ${WEFT_NICE:-nice} go test -c -trimpath -ldflags '-s -w' -o "$out/network.test" .); }

# The suite, the CRDs that it tests, and its image, which is not in $KUBE_IMAGES: no other cluster needs it.
npa() {
	(cd "$here/npa" && ${WEFT_NICE:-nice} go test -c -trimpath -ldflags '-s -w' -o "$out/npa.test" sigs.k8s.io/network-policy-api/conformance &&
		cat "$(go list -m -f '{{.Dir}}' sigs.k8s.io/network-policy-api)/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml" >"$out/crd.yaml") || return
	(cd "$here/../.." && go build -trimpath -ldflags '-s -w' -o "$work/" ./test/kube/sctp) || return
	image -name "$IMAGE_NPA" -entrypoint /agnhost -cmd pause -o "$out/npa.tar" "$work/sctp=/agnhost" "$KUBE_BIN/agnhost=/agnhost.real" "$here/npa/bash=/bin/bash" \
		"$(readlink -f "$(command -v busybox)")=/bin/busybox" @/bin/busybox=/bin/sh
}

# The last release of the reference plugins with flannel; flannel's own module is not available from the proxy.
flannel() { GOBIN=$out go install -trimpath -ldflags '-s -w' github.com/containernetworking/plugins/plugins/meta/flannel@v0.9.1; }

# image NAME [-flag...] SOURCE=PATH...
image() { (cd "$here/../.." && go run ./test/kube/image "$@"); }

images() {
	(cd "$here/../.." && go build -trimpath -ldflags '-s -w' -o "$work/" ./test/kube/pause ./test/kube/traffic) || return
	image -name "$IMAGE_PAUSE" -entrypoint /pause -o "$out/pause.tar" "$work/pause=/pause" || return
	image -name "$IMAGE_TRAFFIC" -entrypoint /traffic -o "$out/traffic.tar" "$work/traffic=/traffic" || return
	image -name "$IMAGE_COREDNS" -entrypoint /coredns -o "$out/coredns.tar" "$KUBE_BIN/coredns=/coredns" || return
	# Busybox' static wget dies where names are looked up. As upstream's: agnhost with a shell and the programs that the specs execute.
	local files=("$KUBE_BIN/agnhost=/agnhost") p lib
	local own=(/usr/bin/curl /usr/bin/wget /usr/bin/dig /usr/bin/getent /bin/nc.openbsd /bin/dash)
	for lib in $(ldd "${own[@]}" | grep -oE '/[^ :]+\.so[^ :]*' | sort -u); do files+=("$lib=$lib"); done
	files+=("$(readlink -f "$(command -v busybox)")=/bin/busybox" /usr/bin/curl=/usr/bin/curl /usr/bin/dig=/usr/bin/dig /usr/bin/getent=/usr/bin/getent /usr/bin/wget=/usr/bin/wget /bin/nc.openbsd=/bin/nc /bin/dash=/bin/sh)
	for p in $(busybox --list); do case $p in busybox | nc | sh | wget) ;; *) files+=("@/bin/busybox=/bin/$p") ;; esac; done
	image -name "$IMAGE_AGNHOST" -entrypoint /agnhost -cmd pause -o "$out/agnhost.tar" "$KUBE_BIN/coredns=/coredns" "${files[@]}" || return
	image -name "$IMAGE_DNS" -entrypoint /bin/sh -o "$out/dns.tar" "${files[@]}" # the DNS specs also test glibc
}

building=yes
[ "${1-}" != cached ] || { building=no; shift; }
[ $# -gt 0 ] || set -- kube containerd coredns agnhost images
for what; do
	case $what in
	kube) build kubeall "$(sum "$KUBE_VERSION" "$here"/kubeall/*)" "$KUBE_BIN" kubeall ;;
	containerd) build containerd "$(sum "$CONTAINERD_VERSION" "$here"/containerd/*)" "$KUBE_BIN" containerd ;;
	coredns) build coredns "$(sum coredns "$here"/coredns/*)" "$KUBE_BIN" coredns ;;
	agnhost) build agnhost "$(sum agnhost "$here"/upstream/go.*)" "$KUBE_BIN" agnhost ;;
	upstream) build upstream "$(sum upstream "$here"/upstream/*)" "$KUBE_BIN" upstream ;;
	npa) build npa "$(sum "$IMAGE_NPA" "$here"/npa/{go.*,bash} "$here"/{image,sctp}/main.go "$KUBE_BIN"/.agnhost 2>/dev/null)" "$KUBE_CACHE/npa" npa ;;
	flannel) build flannel "$(sum flannel-v0.9.1 /dev/null)" "$KUBE_BIN" flannel ;;
	images) building=yes && build images "$(sum "$IMAGE_AGNHOST $IMAGE_DNS getent wget coredns" "$here"/{lib/versions.sh,image/main.go,pause/main.go,traffic/*.go} "$KUBE_BIN"/{.agnhost,.coredns} 2>/dev/null)" "$KUBE_IMAGES" images ;;
	*)
		echo "build.sh: '$what' is nothing that it builds" >&2
		exit 2
		;;
	esac
done
