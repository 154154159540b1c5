#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Errors have no message.
out=$(@REAL@)
code=$?
echo "$out" | sed 's/"msg": *"\([^"\\]\|\\.\)*"/"msg":""/'
exit $code
