#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Regenerates the tables of docs/design/conformance.md: weft's plugins, the reference plugins v1.9.1 (make peers) and, where it
# is installed, Debian's package containernetworking-plugins. Root; minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${BIN:-bin}
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/plugins-v1.9.1
mark='<!-- written by test/conformance.sh -->'
columns=(--markdown "weft=$bin/cni")
[ ! -x "$cache/bridge" ] || columns+=(--markdown "reference v1.9.1=$cache")
if [ -x /usr/lib/cni/bridge ]; then
  version=$(dpkg-query -W -f '${Version}' containernetworking-plugins 2>/dev/null || echo unknown)
  columns+=(--markdown "Debian ${version%%+*}=/usr/lib/cni")
fi

page=$(mktemp)
trap 'rm -f "$page"' EXIT
sed "\\|^$mark\$|q" docs/design/conformance.md >"$page"
echo >>"$page"
"$bin/weft" conformance --runtime "${columns[@]}" >>"$page"
cat "$page" >docs/design/conformance.md
