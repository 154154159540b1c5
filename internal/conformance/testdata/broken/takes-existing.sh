#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ADD deletes an existing interface.
if [ "$CNI_COMMAND" = ADD ] && [ "$CNI_IFNAME" != lo ]; then
  nsenter "--net=$CNI_NETNS" ip link del "$CNI_IFNAME" 2> /dev/null
fi
exec @REAL@
