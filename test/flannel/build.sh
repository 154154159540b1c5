#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh: builds flannel's flanneld of the pinned release into the cache, for the tests that compare weft with it. It is
# downloaded as a Go module. The backend tencent-vpc is omitted: the module that it requires is not available everywhere, and no
# test uses it. Without a C compiler the backend udp is omitted, too.
set -euo pipefail

version=v0.28.9
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/flannel-$version
if [ ! -x "$cache/flannel" ]; then # its CNI plugin, the last release that is available as a module
	mkdir -p "$cache"
	GOBIN=$cache CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' github.com/containernetworking/plugins/plugins/meta/flannel@v0.9.1
fi
[ ! -x "$cache/flanneld" ] || exit 0

echo "flannel: building flanneld $version into $cache (once, some minutes)"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOWORK=off
src=$(go mod download -json "github.com/flannel-io/flannel@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp -r "$src" flannel
chmod -R u+w flannel
cd flannel
rm -r pkg/backend/tencentvpc
sed -i '/backend\/tencentvpc"/d' main.go
export CGO_ENABLED=1
if ! command -v "$(go env CC)" >/dev/null; then
	sed -i '/backend\/udp"/d' main.go
	export CGO_ENABLED=0
fi
go build -trimpath -o "$work/flanneld" .
mkdir -p "$cache"
mv "$work/flanneld" "$cache/flanneld.new"
mv "$cache/flanneld.new" "$cache/flanneld"
