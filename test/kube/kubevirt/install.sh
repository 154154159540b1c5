#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh NAME: installs KubeVirt in a running cluster of test/kube/cluster, by KubeVirt's own operator, and waits until
# it is available.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/versions.sh"
name=${1:?install.sh NAME: the cluster}
parts=$KUBEVIRT_CACHE/parts
kc() { "$here/../cluster" kubectl --name "$name" "$@"; }
say() { echo "kubevirt: $*" >&2; }

began=$SECONDS
"$here/../cluster" load --name "$name" "$KUBEVIRT_CACHE/image.tar"
say "loaded the images after $((SECONDS - began)) s"
kc label node --all --overwrite node-role.kubernetes.io/control-plane= >&2
kc create -f "$parts/kv-resource.yaml" -f "$parts/kubevirt-priority-class.yaml" >&2
sed "s#@VERSION@#$KUBEVIRT_VERSION#" "$here/operator.yaml" | kc create -f - >&2
sed 's#{{.Namespace}}#kubevirt#' "$parts/rbac-operator.authorization.k8s.yaml.in" | kc create -f - >&2
kc wait --for=condition=Established crd/kubevirts.kubevirt.io --timeout=60s >&2
kc create -f "$here/kubevirt.yaml" >&2
kc -n kubevirt wait --for=condition=Available kubevirt/kubevirt --timeout=900s >&2 || {
	kc -n kubevirt get pods,events -o wide >&2
	kc -n kubevirt get kubevirt kubevirt -o yaml >&2
	exit 1
}
say "KubeVirt $KUBEVIRT_VERSION is available after $((SECONDS - began)) s"
