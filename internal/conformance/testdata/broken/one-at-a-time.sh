#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A call fails while another is under way.
[ "$CNI_COMMAND" = ADD ] || exec @REAL@
if ! mkdir /run/broken.lock 2> /dev/null; then
  echo '{"cniVersion":"1.1.0","code":100,"msg":"somebody else is here"}'
  exit 1
fi
sleep 0.3
@REAL@
code=$?
rmdir /run/broken.lock
exit $code
