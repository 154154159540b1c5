#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# STATUS never ends.
[ "$CNI_COMMAND" != STATUS ] || exec sleep 1000
exec @REAL@
