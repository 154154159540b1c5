#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# functional/build.sh: builds the specs of KubeVirt's functional tests of its network, and the guests that they boot, into the cache of
# KubeVirt's build, which must be complete. The specs are compiled in KubeVirt's source, which is fetched again: KUBEVIRT_SOURCE.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../versions.sh"
source=${KUBEVIRT_SOURCE:-https://github.com/kubevirt/kubevirt}

say() { echo "kubevirt: $*" >&2; }

exec 9>"$KUBEVIRT_CACHE/.lock"
flock -n 9 || { say "waiting for another build in $KUBEVIRT_CACHE"; flock 9; }
specs=$KUBEVIRT_CACHE/functional/network.test
stamp=$(cat "$here/suite_test.go.in" <(go version) | sha256sum | cut -c1-32)
mkdir -p "$KUBEVIRT_CACHE/functional"
if [ "$(cat "$KUBEVIRT_CACHE/functional/.specs" 2>/dev/null)" != "$stamp" ]; then
	src=$KUBEVIRT_CACHE/src-functional
	rm -rf "$src"
	say "fetching the source of $KUBEVIRT_VERSION from $source"
	git init -q "$src"
	git -C "$src" fetch -q --depth 1 "$source" "refs/tags/$KUBEVIRT_VERSION" ||
		{ say "the source cannot be fetched: KUBEVIRT_SOURCE can be another repository of KubeVirt's, also a directory"; exit 1; }
	git -C "$src" checkout -q FETCH_HEAD
	mkdir "$src/tests/functional"
	cp "$here/suite_test.go.in" "$src/tests/functional/suite_test.go"
	say "building the specs into $specs (once, 2 to 5 minutes)"
	(
		unset GOWORK
		cd "$src"
		GOFLAGS='-mod=vendor -buildvcs=false -trimpath' CGO_ENABLED=1 ${WEFT_NICE:-nice} \
			go test -c -tags selinux -ldflags '-s -w' -o "$specs.new" ./tests/functional
	)
	mv "$specs.new" "$specs"
	cp "$src/tests/default-config.json" "$KUBEVIRT_CACHE/functional/"
	echo "$stamp" >"$KUBEVIRT_CACHE/functional/.specs"
	rm -rf "$src"
fi
stamp=$(cat "$here"/../guest/*.sh "$here"/../guest/*.go "$here"/../guest/disks/*.go "$here/../../../../internal/oci/image.go" | sha256sum | cut -c1-32)
if [ "$(cat "$KUBEVIRT_CACHE/functional/.guests" 2>/dev/null)" != "$stamp" ]; then
	"$here/../guest/build.sh" "$KUBEVIRT_CACHE/functional/guests.tar"
	echo "$stamp" >"$KUBEVIRT_CACHE/functional/.guests"
fi
