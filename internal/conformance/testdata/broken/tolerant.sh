#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A malformed container ID is replaced instead of rejected.
case $CNI_CONTAINERID in ../* | -* | *' '*) CNI_CONTAINERID=replaced$$ ;; esac
exec @REAL@
