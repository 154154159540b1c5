#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An unknown key is rejected with the wrong code.
[ "$CNI_COMMAND" = ADD ] || exec @REAL@
conf=$(cat)
case $conf in
  *kitUnknownKey*) echo '{"cniVersion":"1.1.0","code":7,"msg":"kitUnknownKey is unknown"}'; exit 1 ;;
  *) echo "$conf" | @REAL@ ;;
esac
