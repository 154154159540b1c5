#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DEL without prevResult is an error.
[ "$CNI_COMMAND" = DEL ] || exec @REAL@
conf=$(cat)
case $conf in
  *prevResult*) echo "$conf" | @REAL@ ;;
  *) echo '{"cniVersion":"1.1.0","code":7,"msg":"prevResult is missing"}'; exit 1 ;;
esac
