#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh: builds Calico's CNI plugin and node daemon of the pinned release into the cache, for the test that migrates a
# cluster from Calico. CALICO_SOURCE is a repository of Calico's, a URL or a directory.
set -euo pipefail

version=v3.32.1
source=${CALICO_SOURCE:-https://github.com/projectcalico/calico}
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/calico-$version
[ ! -e "$cache/done" ] || exit 0

echo "calico: building $version into $cache (once, 10 to 30 minutes)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src" "$work/out"
cd "$work/src"
git init -q
git fetch -q --depth 1 "$source" "refs/tags/$version"
git checkout -q FETCH_HEAD
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off
go build -trimpath -ldflags '-s -w' -o "$work/out/calico" ./cni-plugin/cmd/calico
go build -trimpath -ldflags '-s -w' -o "$work/out/calico-node" ./node/cmd/calico-node
ln "$work/out/calico" "$work/out/calico-ipam"
cp -r libcalico-go/config/crd "$work/out/crds"
mkdir -p "$cache"
cp -r "$work/out/." "$cache/"
touch "$cache/done"
