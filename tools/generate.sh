#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes what is made from the types of api/v1alpha1 and their markers below a directory, as it is in the repository:
#
#   tools/generate.sh .       what make generate does
#   tools/generate.sh DIR     elsewhere, to compare
#
# The generators' versions are those of tools/go.mod.
set -euo pipefail
[ $# = 1 ] || { echo "usage: tools/generate.sh DIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
GO=${GO:-go}

# The programs themselves, not "go tool": the types are loaded as this module's, and the generators are another module's.
controller_gen=$("$GO" -C tools tool -n controller-gen)

client_gen=$("$GO" -C tools tool -n client-gen)

"$controller_gen" object:headerFile=tools/header.txt crd paths=./api/v1alpha1 \
	output:object:dir="$out/api/v1alpha1" output:crd:dir="$out/deploy/crds"
for file in "$out"/deploy/crds/weft.dev_*.yaml; do
	{ echo '# Made from api/v1alpha1 by `make generate`.'; sed 1d "$file"; } >"$file.new"
	mv "$file.new" "$file"
done

# Without clients for tests: the API server itself is to be had (envtest, kind), and does not forget a rule.
"$client_gen" --go-header-file tools/header.txt --input-base github.com/weft-net/weft --input api/v1alpha1 \
	--plural-exceptions NodeEndpoints:NodeEndpoints --fake-clientset=false \
	--clientset-name client --output-dir "$out/pkg" --output-pkg github.com/weft-net/weft/pkg
