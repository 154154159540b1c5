#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A second DEL of a container is an error.
mark=/run/broken.$(echo "$CNI_CONTAINERID" | cksum | tr -d ' ')
if [ "$CNI_COMMAND" = DEL ]; then
  if [ -e "$mark" ]; then
    echo '{"cniVersion":"1.1.0","code":100,"msg":"nothing to delete"}'
    exit 1
  fi
  : > "$mark"
elif [ "$CNI_COMMAND" = ADD ]; then
  rm -f "$mark"
fi
exec @REAL@
