#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The routes of prevResult are not passed on.
[ "$CNI_COMMAND" = ADD ] || exec @REAL@
out=$(@REAL@)
code=$?
echo "$out" | tr -d '\n' | sed 's/"routes": *\[[^]]*\]/"routes":[]/'
exit $code
