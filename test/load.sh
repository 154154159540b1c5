#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# load.sh COMMAND…: runs a command with LOAD (8) busy loops in the background, and stops them afterwards.
set -uo pipefail

busy=()
trap 'kill -KILL "${busy[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for ((i = 0; i < ${LOAD:-8}; i++)); do
	# Each ends by itself when this script was killed.
	(while kill -0 $$ 2>/dev/null; do for ((n = 0; n < 100000; n++)); do :; done; done) &
	busy+=($!)
done
echo "make: ${#busy[@]} programs want a processor each beside this"
"$@"
