#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# cover.sh: runs make test and make test-e2e and prints the statement coverage of weft's packages, of each and of both together.
# Programs that tests execute are not counted. DIR has the profiles.
set -uo pipefail
cd "$(dirname "$0")/.."

dir=${DIR:-bin/cover}
rm -rf "$dir"
mkdir -p "$dir"
code=0
for suite in test e2e; do
	COVER=$(realpath "$dir") test/run.sh "$suite" || code=1
done
# A line of a profile is FILE:BEGIN,END STATEMENTS COUNT; each package's tests list every block, mostly with the count 0.
awk '
	/^mode:/ { next }
	{ size[$1] = $2; if ($3 > 0) { both[$1]; if (FILENAME ~ /\/e2e/) e2e[$1]; else test[$1] } }
	END {
		for (b in size) all += size[b]
		for (b in test) t += size[b]
		for (b in e2e) e += size[b]
		for (b in both) n += size[b]
		if (!all) { print "cover: no profile"; exit 1 }
		printf "cover: of %d statements make test reaches %d (%.1f%%), make test-e2e %d (%.1f%%), both together %d (%.1f%%)\n",
			all, t, 100 * t / all, e, 100 * e / all, n, 100 * n / all
	}' "$dir"/*.out || code=1
exit $code
