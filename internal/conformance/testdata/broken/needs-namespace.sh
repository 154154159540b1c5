#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DEL without a namespace does nothing.
if [ "$CNI_COMMAND" = DEL ] && ! [ -e "$CNI_NETNS" ]; then
  exit 0
fi
exec @REAL@
