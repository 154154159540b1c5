#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# DEL and CHECK print to standard output.
case $CNI_COMMAND in DEL | CHECK) echo "broken: $CNI_COMMAND" ;; esac
exec @REAL@
