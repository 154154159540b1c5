#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a delegate writes to standard error is lost.
exec @REAL@ 2> /dev/null
