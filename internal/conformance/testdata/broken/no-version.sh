#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# VERSION is not implemented.
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion":"1.1.0","code":4,"msg":"CNI_COMMAND VERSION is unknown"}'
  exit 1
fi
exec @REAL@
