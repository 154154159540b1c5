#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A malformed container ID is mended instead of refused.
case $CNI_CONTAINERID in ../* | -* | *' '*) CNI_CONTAINERID=mended$$ ;; esac
exec @REAL@
