#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Interfaces of the host have the container's namespace as sandbox.
[ "$CNI_COMMAND" = ADD ] || exec @REAL@
out=$(@REAL@)
code=$?
echo "$out" | sed "s#\"name\": *\"\\([^\"]*\\)\"#\"name\":\"\\1\",\"sandbox\":\"$CNI_NETNS\"#g"
exit $code
