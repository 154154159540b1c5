#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh OUTPUT: compiles fastpath.c, without line numbers, which only the verifier's log would show.
set -euo pipefail
cd "$(dirname "$0")"
clang -O2 -g -Wall -Werror -target bpf -mcpu=v3 -I"/usr/include/$(uname -m)-linux-gnu" -c fastpath.c -o "$1"
llvm-strip -g "$1"
llvm-objcopy --remove-section .BTF.ext --remove-section .rel.BTF.ext --remove-section .llvm_addrsig "$1"
