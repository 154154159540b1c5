#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DEL and its child hang.
[ "$CNI_COMMAND" != DEL ] || sleep 1017
exec @REAL@
