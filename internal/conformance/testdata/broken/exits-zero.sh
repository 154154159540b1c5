#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Errors are printed, but the exit code is 0.
@REAL@
exit 0
