#!/usr/bin/awk -f
# SPDX-License-Identifier: Apache-2.0
#
# report.awk LIST OUT: prints the results of the tests in the VM like "go test -v": one line per test, why a test was
# skipped, and the output of failed packages. Exit code 1 if a test failed, if a package did not finish, or if nothing was
# tested.
{ sub(/\r$/, "") }

FILENAME == ARGV[1] { listed[++packages] = $1; next }

/^weft-vm: kernel / { print "test-vm: inside, Linux " $3; next }
/^weft-vm: package / { pkg = $3; lines = passed = failed = skipped = 0; next }
/^weft-vm: code / {
	code = $3
	ended[pkg] = 1
	if (code != 0) {
		bad = 1
		for (i = 1; i <= lines; i++) print line[i]
	} else {
		for (i = 1; i <= lines; i++) {
			if (line[i] ~ /^ *--- (PASS|SKIP)/) print line[i]
			if (line[i] ~ /: SKIP: /) print line[i]
			if (line[i] ~ /^Benchmark.*[0-9]/) print line[i]
		}
	}
	printf "%s\t%s\t%d passed, %d failed, %d skipped\n", code == 0 ? "ok  " : "FAIL", pkg, passed, failed, skipped
	tested += passed + failed
	total_passed += passed; total_failed += failed; total_skipped += skipped
	pkg = ""
	next
}
pkg != "" {
	line[++lines] = $0
	if ($0 ~ /^ *--- PASS/ || $0 ~ /^Benchmark[^ \t]*[ \t]+[0-9]+[ \t]/) passed++
	if ($0 ~ /^ *--- FAIL/) failed++
	if ($0 ~ /^ *--- SKIP/) skipped++
}
END {
	if (pkg != "") for (i = 1; i <= lines; i++) print line[i]
	for (i = 1; i <= packages; i++)
		if (!(listed[i] in ended)) { print "FAIL\t" listed[i] "\tdid not come to its end"; bad = 1 }
	if (!tested) { print "test-vm: nothing was tested"; bad = 1 }
	printf "test-vm: %d passed, %d failed, %d skipped\n", total_passed, total_failed, total_skipped
	exit bad
}
