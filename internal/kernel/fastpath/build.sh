#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh OUTPUT: compiles fastpath.c.
set -euo pipefail
cd "$(dirname "$0")"
clang -O2 -g -Wall -Werror -target bpf -mcpu=v3 -I"/usr/include/$(uname -m)-linux-gnu" -c fastpath.c -o "$1"
