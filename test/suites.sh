#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# suites.sh SUITE [WORD…]: prints the packages of a test suite, one per line; with words only those whose names contain one.
# Every package with tests is in a suite of make test, of make test-e2e, or in both: internal/archtest checks that.
#
#   pure        make test: use neither kernel nor programs, so that go test can cache results
#   own         make test: use their own namespaces, or run programs; they run in parallel
#   serial      make test: measure times, so they run one after the other; see below
#   e2e         make test-e2e: whole systems, and all packages that skip tests under go test -short
#   e2e-serial  make test-e2e: those of them that measure times
set -euo pipefail
cd "$(dirname "$0")/.."
module=github.com/weft-net/weft

# Whole systems: agents with real servers, emulated VMs, other projects' programs. And all below test/.
whole='
internal/bench internal/bench/ipam internal/bench/migration internal/bench/path internal/bench/policy internal/bench/vm
internal/conformance
internal/plan/policy/oracletest
internal/vm/launch internal/vm/matrix internal/vm/qemu
'

# Clock-bound packages, each with what it measures.
serial='
internal/node/probe  packets by the second, which come to nothing where others use the processor
test/scale      how long an agent takes with many nodes and pods
'

suite=${1:?give pure, own, serial, e2e or e2e-serial}
shift
case $suite in pure | own | serial | e2e | e2e-serial) ;; *)
	echo "suites.sh: there is no suite $suite" >&2
	exit 2
	;;
esac

# chosen NAME WORD…: without words everything is chosen.
chosen() {
	local name=$1 word
	shift
	for word in "$@"; do
		[[ $name != *"$word"* ]] || return 0
	done
	(($# == 0))
}

kernel=" ($module/internal/(nettest|apitest|netns)|os/exec|syscall|golang.org/x/sys/unix|github.com/vishvananda/netlink) "
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}} {{join .TestImports " "}} {{join .XTestImports " "}}{{end}}' ./... |
	while read -r pkg dir imports; do
		name=${pkg#"$module"/} is=own and=
		[[ " $pkg $imports " =~ $kernel ]] || is=pure
		[[ $serial != *$'\n'"$name "* ]] || is=serial
		if [[ " ${whole//$'\n'/ } " == *" $name "* || ($name == test/* && $is != pure) ]]; then
			[[ $is == serial ]] && is=e2e-serial || is=e2e
		elif grep -qsE 'testing\.Short\(\)|nettest\.EndToEnd\(' "$dir"/*_test.go; then
			and=e2e
		fi
		[[ $is == "$suite" || $and == "$suite" ]] || continue
		if chosen "$name" "$@"; then echo "./$name"; fi
	done
