#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Delegates do not get CNI_ARGS.
CNI_ARGS= exec @REAL@
