#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# multus.sh: builds Multus' thin plugin and what installs it from its source into the cache, once, and prints the plugin's path.
# MULTUS_SOURCE can be another repository of Multus', also a directory.
set -euo pipefail
version=v4.3.0
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/multus-$version
source=${MULTUS_SOURCE:-https://github.com/k8snetworkplumbingwg/multus-cni}

if [ ! -x "$cache/multus" ] || [ ! -x "$cache/thin_entrypoint" ]; then
	mkdir -p "$cache"
	src=$(mktemp -d "$cache/.src.XXXXXX")
	trap 'rm -rf "$src"' EXIT
	git init -q "$src"
	git -C "$src" fetch -q --depth 1 "$source" "refs/tags/$version" || {
		echo "multus: the source cannot be fetched from $source: MULTUS_SOURCE can be another repository of Multus', also a directory" >&2
		exit 1
	}
	git -C "$src" checkout -q FETCH_HEAD
	echo "multus: building $version into $cache (once, a minute)" >&2
	(cd "$src" && env -u GOWORK GOFLAGS='-mod=vendor -trimpath' CGO_ENABLED=0 nice go build -ldflags '-s -w' -o "$src/bin/" ./cmd/multus ./cmd/passthru-cni ./cmd/install_multus ./cmd/thin_entrypoint)
	mv "$src"/bin/* "$cache/"
fi
echo "$cache/multus"
