// SPDX-License-Identifier: Apache-2.0

package version

import (
	"regexp"
	"strconv"
)

// Skew is how far the versions of a cluster are apart.
type Skew string

// Skews.
const (
	// Same: there is one version.
	Same Skew = "none"
	// Supported: each pair of versions is of one minor version, or of two in succession.
	Supported Skew = "supported"
	// Unsupported: an upgrade has skipped a minor version, or has not ended before the next began.
	Unsupported Skew = "unsupported"
	// Unknown: a version has no number, as that of a build without tags.
	Unknown Skew = "unknown"
)

// release is what the policy of upgrades counts (docs/tasks/upgrade.md): patches, candidates and commits between are of
// one minor version.
type release struct{ major, minor int }

func parse(version string) (release, bool) {
	m := regexp.MustCompile(`^v?(\d{1,6})\.(\d{1,6})\.\d`).FindStringSubmatch(version)
	if m == nil {
		return release{}, false
	}
	major, _ := strconv.Atoi(m[1]) // of digits
	minor, _ := strconv.Atoi(m[2])
	return release{major, minor}, true
}

// compare returns the skew of versions.
func compare(versions []string) Skew {
	skew := Same
	for i, a := range versions {
		for _, b := range versions[i+1:] {
			if a == b {
				continue
			}
			ra, oka := parse(a)
			rb, okb := parse(b)
			switch {
			case !oka || !okb:
				return Unknown
			case ra.major != rb.major || ra.minor-rb.minor > 1 || rb.minor-ra.minor > 1:
				skew = Unsupported
			case skew == Same:
				skew = Supported
			}
		}
	}
	return skew
}
