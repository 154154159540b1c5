# SPDX-License-Identifier: Apache-2.0
#
# The versions of the test cluster's components, and the cache directories. To be sourced.
KUBE_VERSION=v1.36.3
CONTAINERD_VERSION=v2.3.7

KUBE_CACHE=${WEFT_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft/kube-$KUBE_VERSION}
KUBE_BIN=${WEFT_KUBE_BIN_DIR:-$KUBE_CACHE/bin}
KUBE_IMAGES=$KUBE_CACHE/images

IMAGE_PAUSE=registry.k8s.io/pause:3.10.2
IMAGE_AGNHOST=registry.k8s.io/e2e-test-images/agnhost:2.63.0
IMAGE_NPA=registry.k8s.io/e2e-test-images/agnhost:2.45
IMAGE_DNS=registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0
IMAGE_COREDNS=localhost/coredns:test
IMAGE_TRAFFIC=localhost/weft-traffic:test
REFERENCE=${XDG_CACHE_HOME:-$HOME/.cache}/weft/plugins-v1.9.1
FLANNELD=${XDG_CACHE_HOME:-$HOME/.cache}/weft/flannel-v0.28.9/flanneld
