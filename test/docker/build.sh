#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh: builds the dockerd of the pinned release into the cache, for the tests of test/docker, which run with Debian's and
# with this one. MOBY_SOURCE is a repository of Moby's, a URL or a directory; without it nothing is built. With --where it
# prints the directory, if it is built.
set -euo pipefail

version=29.7.2
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/dockerd-v$version
if [ "${1:-}" = --where ]; then
	[ ! -e "$cache/done" ] || echo "$cache"
	exit
fi
[ ! -e "$cache/done" ] || exit 0
if [ -z "${MOBY_SOURCE:-}" ]; then
	echo "docker: MOBY_SOURCE does not say where a repository of Moby's is" >&2
	exit 1
fi
echo "docker: building dockerd $version into $cache (once, 3 to 10 minutes)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src" "$work/out"
cd "$work/src"
git init -q
git fetch -q --depth 1 "$MOBY_SOURCE" "refs/tags/docker-v$version"
git checkout -q FETCH_HEAD
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off
go build -mod=vendor -trimpath -ldflags "-s -w -X github.com/moby/moby/v2/dockerversion.Version=$version" \
	-o "$work/out/" ./cmd/dockerd ./cmd/docker-proxy
mkdir -p "$cache"
cp "$work/out/"* "$cache/"
touch "$cache/done"
