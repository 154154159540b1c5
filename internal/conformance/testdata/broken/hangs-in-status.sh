#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# STATUS hangs.
[ "$CNI_COMMAND" != STATUS ] || exec sleep 1000
exec @REAL@
