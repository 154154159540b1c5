#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# GC removes valid attachments, too.
[ "$CNI_COMMAND" = GC ] || exec @REAL@
sed 's/"cni.dev\/valid-attachments": *\[[^]]*\]/"cni.dev\/valid-attachments":[]/' | @REAL@
