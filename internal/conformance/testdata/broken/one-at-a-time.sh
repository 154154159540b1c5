#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Concurrent calls fail.
[ "$CNI_COMMAND" = ADD ] || exec @REAL@
if ! mkdir /run/broken.lock 2> /dev/null; then
  echo '{"cniVersion":"1.1.0","code":100,"msg":"another call is running"}'
  exit 1
fi
sleep 0.3
@REAL@
code=$?
rmdir /run/broken.lock
exit $code
