#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# CHECK always succeeds.
[ "$CNI_COMMAND" != CHECK ] || exit 0
exec @REAL@
