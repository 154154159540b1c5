#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# STATUS creates a file.
[ "$CNI_COMMAND" = STATUS ] || exec @REAL@
conf=$(cat)
dir=$(echo "$conf" | sed 's/.*"dataDir": *"\([^"]*\)".*/\1/')
: > "$dir/status"
echo "$conf" | @REAL@
