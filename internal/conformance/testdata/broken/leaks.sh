#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DEL does nothing.
[ "$CNI_COMMAND" != DEL ] || exit 0
exec @REAL@
