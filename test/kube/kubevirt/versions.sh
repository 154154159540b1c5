# SPDX-License-Identifier: Apache-2.0
#
# Versions of KubeVirt's cluster that go together, and the cache directory. To be sourced. KubeVirt v1.9.0 is the last that
# runs with cgroup version 1; libvirt 11.3 and QEMU 10.0 are Debian's.
KUBEVIRT_VERSION=v1.9.0
KUBEVIRT_DEBIAN=trixie
KUBEVIRT_CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/kubevirt-$KUBEVIRT_VERSION
