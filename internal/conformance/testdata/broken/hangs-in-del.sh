#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DEL never ends, and neither does its child.
[ "$CNI_COMMAND" != DEL ] || sleep 1000
exec @REAL@
