#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh: builds the programs of earlier commits of weft into the cache, for the tests in which today's agents take over
# their running pods and VMs: the last commit before the programs were divided by audience, and the last before names
# followed docs/glossary.md. The second is the version before today's, tagged v0.1.0-rc.1 (docs/tasks/upgrade.md), with which
# test/upgrade mixes today's programs; it is named by its commit, because a clone may have no tags. The sources are in the history of this repository: in a shallow clone the
# script fails with a message. With --where it prints the directories that are built, separated by colons. With --image it
# builds the image localhost/weft:previous of the version before and prints, last, the directory with it and the manifests.
set -euo pipefail
cd "$(dirname "$0")/../.."

cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}
where=
previous=3c957eb483fe

# source_of COMMIT: unpacks the sources of a commit into a new directory, $work.
source_of() {
	git cat-file -e "$1^{commit}" 2>/dev/null || {
		echo "upgrade: this clone does not have the commit $1: fetch the whole history" >&2
		exit 1
	}
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	git archive "$1" | tar -x -C "$work"
}

if [ "${1:-}" = --image ]; then
	dir=$cache/weft-$previous-image
	if [ ! -e "$dir/.all" ]; then
		echo "upgrade: building the image of weft $previous into $dir (once)" >&2
		source_of "$previous"
		make -s -C "$work" image VERSION="$previous" IMAGE=localhost/weft:previous GOFLAGS=-buildvcs=false >&2
		mkdir -p "$dir/deploy"
		cp "$work"/bin/weft-image.tar "$dir/"
		cp "$work"/deploy/*.yaml "$dir/deploy/"
		touch "$dir/.all"
	fi
	echo "$dir"
	exit
fi
for commit in 7c971161c367 "$previous"; do
	dir=$cache/weft-$commit
	if [ "${1:-}" = --where ]; then
		[ ! -e "$dir/.all" ] || where=$where${where:+:}$dir
		continue
	fi
	[ ! -e "$dir/.all" ] || continue
	echo "upgrade: building weft $commit into $dir (once)"
	source_of "$commit"
	make -s -C "$work" build VERSION="$commit" GOFLAGS=-buildvcs=false
	mkdir -p "$dir"
	cp -a "$work/bin/." "$dir/"
	touch "$dir/.all"
	rm -rf "$work"
done
[ "${1:-}" != --where ] || echo "$where"
