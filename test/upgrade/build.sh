#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh: builds the programs of an earlier commit of weft into the cache, for the tests in which its agents leave
# running pods and machines to those of today. It is the last commit before the programs were divided by their users. The sources come from
# the history of this repository: a clone without history has none, and says so. With --where it says where they are.
set -euo pipefail
cd "$(dirname "$0")/../.."

commit=7c971161c367
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/weft-$commit
if [ "${1:-}" = --where ]; then
	echo "$cache"
	exit
fi
[ ! -e "$cache/.all" ] || exit 0
git cat-file -e "$commit^{commit}" 2>/dev/null || {
	echo "upgrade: this clone does not have the commit $commit: fetch the whole history" >&2
	exit 1
}

echo "upgrade: building weft $commit into $cache (once)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive "$commit" | tar -x -C "$work"
make -s -C "$work" build VERSION="$commit" GOFLAGS=-buildvcs=false
mkdir -p "$cache"
cp -a "$work/bin/." "$cache/"
touch "$cache/.all"
