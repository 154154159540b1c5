#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# GC does nothing.
[ "$CNI_COMMAND" != GC ] || exit 0
exec @REAL@
