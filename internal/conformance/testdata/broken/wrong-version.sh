#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Results are always of version 0.4.0.
[ "$CNI_COMMAND" = ADD ] || exec @REAL@
out=$(@REAL@)
code=$?
echo "$out" | sed 's/"cniVersion": *"[^"]*"/"cniVersion":"0.4.0"/'
exit $code
