#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh: builds Calico's CNI plugin and node daemon of the pinned release into the cache, for the test that migrates a
# cluster from Calico, and a program around its parser of selectors. CALICO_SOURCE is a repository of Calico's, a URL or a directory.
set -euo pipefail

version=v3.32.1
source=${CALICO_SOURCE:-https://github.com/projectcalico/calico}
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/calico-$version
[ ! -e "$cache/done" ] || [ ! -e "$cache/selectors" ] || exit 0

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
mkdir weft-selectors
cat > weft-selectors/main.go <<'END'
// Program selectors answers each selector with labels, a line of JSON, with whether it is valid and matches them.
package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"
)

func main() {
	logrus.SetOutput(io.Discard)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q struct {
			Selector string
			Labels   map[string]string
		}
		if in.Decode(&q) != nil {
			return
		}
		s, err := selector.Parse(q.Selector)
		_ = out.Encode(map[string]bool{"valid": err == nil, "matches": err == nil && s.Evaluate(q.Labels)})
	}
}
END
go build -trimpath -ldflags '-s -w' -o "$work/out/selectors" ./weft-selectors
cp -r libcalico-go/config/crd "$work/out/crds"
mkdir -p "$cache"
cp -r "$work/out/." "$cache/"
touch "$cache/done"
