#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [FOCUS...]: Calico's own end-to-end specs of policies, built from its source, in a cluster of weft with Calico's
# kinds of the group projectcalico.org/v3 and without Calico's API server. It writes a table of what passed, failed and does
# not apply to bin/e2e-calico.md.
#
#	CALICO_SOURCE=R      a repository of Calico's, a URL or a directory
#	WEFT_E2E_CLUSTER=N   uses an existing cluster of weft
#	WEFT_E2E_TIMEOUT=20m the timeout of a run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
kube=$repo/test/kube
version=v3.32.1
source=${CALICO_SOURCE:-https://github.com/projectcalico/calico}
files=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/calico-$version-e2e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build builds the specs. Kubernetes' own are run by test/kube/upstream.sh; those of BGP, of the operator and of Istio need
# what is not here.
build() {
	echo "calico: building the specs of $version into $files (once, 5 to 20 minutes)"
	mkdir "$work/src" "$work/out"
	cd "$work/src"
	git init -q && git fetch -q --depth 1 "$source" "refs/tags/$version" && git checkout -q FETCH_HEAD || return
	mkdir e2e/cmd/weft
	grep -vE '"k8s.io/kubernetes/test/e2e/network"|e2e/pkg/tests/(apis|bgp|ipam|istio|networking|operator)"' e2e/cmd/k8s/e2e_test.go >e2e/cmd/weft/e2e_test.go
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off ${WEFT_NICE:-nice} go test -c -trimpath -ldflags '-s -w' -o "$work/out/e2e.test" ./e2e/cmd/weft || return
	cp -r api/config/crd "$work/out/crds"
	mkdir -p "$files"
	cp -r "$work/out/." "$files/"
	touch "$files/done"
}
if [ ! -e "$files/done" ] && ! (build); then
	echo "calico: SKIPPED: the specs cannot be built here: say by CALICO_SOURCE where Calico's repository is"
	exit 0
fi

"$kube/../deps.sh" kube
"$kube/build.sh"
name=${WEFT_E2E_CLUSTER:-}
if [ -z "$name" ]; then
	name=cale2e
	"$kube/cluster" down --name $name
	trap '"$kube/cluster" down --name $name; rm -rf "$work"' EXIT
	"$kube/cluster" up --name $name --cni none
fi
. "$kube/lib/versions.sh"
. "$kube/lib/names.sh"
kc get crd tiers.projectcalico.org >/dev/null 2>&1 || kc create -f "$files/crds"
if [ -z "${WEFT_E2E_CLUSTER:-}" ]; then
	"$kube/cluster" load --name $name "$repo/bin/weft-image.tar"
	kc create -f "$repo/deploy/nad-crd.yaml"
	kc apply -f "$repo/deploy/crds.yaml" -f "$repo/deploy/weft.yaml"
	kc -n kube-system rollout status daemonset/weft --timeout=180s
	kc wait --for=condition=Ready node --all --timeout=120s
	kc -n kube-system rollout status deployment/coredns --timeout=180s
fi
# As calico-kube-controllers creates it; specs change it.
kc apply -f - <<-'OBJECT'
	apiVersion: projectcalico.org/v3
	kind: KubeControllersConfiguration
	metadata: {name: default}
	spec: {controllers: {node: {hostEndpoint: {autoCreate: Disabled}}}}
OBJECT
# The specs' images, under their names: a shell with wget, and a web server.
printf '#!/bin/sh\nexec /agnhost test-webserver "$@"\n' >"$work/test-webserver"
chmod 755 "$work/test-webserver"
(cd "$repo" && go run ./test/kube/image -name gcr.io/kubernetes-e2e-test-images/test-webserver:1.0 -entrypoint /test-webserver -o "$work/web.tar" \
	"$work/test-webserver=/test-webserver" "$KUBE_BIN/agnhost=/agnhost" "$(readlink -f "$(command -v busybox)")=/bin/busybox" @/bin/busybox=/bin/sh)
"$kube/cluster" load --name $name "$work/web.tar"
for node in $(node_names); do
	"$kube/cluster" exec --name $name "$node" ctr -n k8s.io images tag --force "$IMAGE_AGNHOST" docker.io/library/alpine:3 >/dev/null
done

skip=$(grep -v '^#' "$here/not-applicable" | cut -f1 | sed 's/[][\.*+?(){}|^$]/\\&/g' | paste -sd '|')
[ $# -gt 0 ] || set -- sig-calico
i=0 failed=0
for focus; do
	i=$((i + 1))
	mkdir "$work/$i"
	(cd "$work/$i" && timeout -k 30 "${WEFT_E2E_TIMEOUT:-20m}" "$kube/cluster" exec --name "$name" control "$files/e2e.test" -test.timeout=0 \
		-kubeconfig="$pki/admin.kubeconfig" -provider=skeleton -ginkgo.focus="$focus" -ginkgo.skip="$skip" -ginkgo.no-color \
		-ginkgo.junit-report="$work/$i/report.xml" >"$work/$i/log" 2>&1) || failed=1
	[ -s "$work/$i/report.xml" ] || { tail -n 30 "$work/$i/log" >&2; exit 1; }
done
mkdir -p "$repo/bin"
cat "$work"/*/log >"$repo/bin/e2e-calico.log"
(cd "$repo" && go run ./test/kube/table -suite "Calico's" -reasons "$here/reasons" -not-applicable "$here/not-applicable" \
	"$work"/*/report.xml) | tee "$repo/bin/e2e-calico.md"
exit $failed
