#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [FLAGS of go test]: compares KubeVirt's network code with weft's, in namespaces (root). If KubeVirt's module is not available, it
# prints that and compares nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${WEFT_BIN_DIR:-$(cd "$here/../.." && pwd)/bin}
export CGO_ENABLED=0
cd "$here"
if ! why=$(go mod download kubevirt.io/kubevirt 2>&1 && go build -o "$bin/kubevirt/kubevirt-net" . 2>&1 &&
	go build -o "$bin/kubevirt/" kubevirt.io/kubevirt/cmd/virt-chroot 2>&1); then
	printf '%s\n' "$why" | tail -n 5 >&2
	echo "SKIP: KubeVirt's module cannot be had or built here: weft is not compared with KubeVirt's code" >&2
	exit 0
fi
WEFT_BIN_DIR=$bin exec go test -count=1 -timeout 15m "$@" .
