#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh test|e2e: runs the tests of make test or of make test-e2e, and continues after failures.
#
#   PKG='blocks …'  only packages whose names contain one of the words
#   COVER=DIR       writes coverage profiles of all of weft's packages there
#
# The tests execute the programs in bin/, copied to a directory that other users can read. Without the reference plugins and
# flannel's flanneld, tests that need them are skipped. Those with Docker run a second time with a newer dockerd, if
# test/docker/build.sh has built one. Skipped tests and the reasons are printed once at the end, and are in
# bin/skipped or bin/skipped-e2e, which make test-vm reads.
set -uo pipefail
cd "$(dirname "$0")/.."

suite=${1:?give test or e2e}
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}
read -ra words <<<"${PKG:-}"
case $suite in
test) skipped=bin/skipped ;;
e2e) skipped=bin/skipped-e2e ;;
*)
	echo "run.sh: '$suite' is no suite (give test or e2e)" >&2
	exit 2
	;;
esac

programs=$(mktemp -d) || exit
trap 'rm -rf "$programs"' EXIT
chmod 755 "$programs"
cp -a bin/. "$programs/" || exit
rm -f "$skipped"
export WEFT_PROGRAMS=$programs WEFT_SKIPS=$PWD/$skipped WEFT_FLANNEL_DIR=$cache/flannel-v0.28.9 WEFT_PEER_BIN_DIR=
[ ! -e "$cache/plugins-v1.9.1/.all" ] || WEFT_PEER_BIN_DIR=$cache/plugins-v1.9.1
earlier=$(test/upgrade/build.sh --where)
[ -z "$earlier" ] || export WEFT_EARLIER_DIR=$earlier

# Tests are linked without debug information, which saves two thirds of the time.
code=0
run() { # run SUITE FLAG…
	local packages begin=$SECONDS cover=()
	packages=$(test/suites.sh "$1" "${words[@]}") || exit
	[ -n "$packages" ] || return 0
	[ -z "${COVER:-}" ] || cover=(-covermode=set -coverpkg=./internal/...,./api/...,./deploy/... "-coverprofile=$COVER/$1.out")
	echo "make: $1: $(wc -l <<<"$packages") packages: go test ${*:2}"
	# shellcheck disable=SC2086
	go test -ldflags '-s -w' "${@:2}" "${cover[@]}" $packages || code=1
	echo "make: $1: $((SECONDS - begin)) s"
}
if [ "$suite" = test ]; then
	# What is tested is this host's kernel, so only what does not touch it may be known from the last time.
	run pure -short -p 4 -timeout 10m
	run own -short -p 4 -count=1 -timeout 15m
	run serial -short -p 1 -count=1 -timeout 10m
else
	run e2e -p 2 -count=1 -timeout 30m
	run e2e-serial -p 1 -count=1 -timeout 30m
	newer=$(test/docker/build.sh --where)
	if [ -n "$newer" ] && { ((${#words[@]} == 0)) || [[ " ${words[*]} " == *" docker "* ]]; }; then
		echo "make: test/docker with the dockerd of $newer"
		WEFT_DOCKERD_DIR=$newer go test -ldflags '-s -w' -count=1 -timeout 30m ./test/docker || code=1
	fi
fi
if [ -s "$skipped" ]; then
	echo "make: SKIPPED on this host:"
	sort -u "$skipped"
fi
exit $code
