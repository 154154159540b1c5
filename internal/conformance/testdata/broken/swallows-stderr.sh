#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A delegate's standard error is lost.
exec @REAL@ 2> /dev/null
