#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Errors are told, but the exit code is that of a success.
@REAL@
exit 0
