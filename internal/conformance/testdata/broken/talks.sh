#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DEL and CHECK say on standard output how they fared.
case $CNI_COMMAND in DEL | CHECK) echo "broken: $CNI_COMMAND" ;; esac
exec @REAL@
