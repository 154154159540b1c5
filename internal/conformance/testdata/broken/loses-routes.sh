#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The routes of prevResult are not handed on.
[ "$CNI_COMMAND" = ADD ] || exec @REAL@
out=$(@REAL@)
code=$?
echo "$out" | tr -d '\n' | sed 's/"routes": *\[[^]]*\]/"routes":[]/'
exit $code
