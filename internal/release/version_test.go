// SPDX-License-Identifier: Apache-2.0

package release

import "testing"

// TestVersionWithImage: only a release has an image of its version's name.
func TestVersionWithImage(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "v0.1.0", "v1.20.3-rc.1": "v1.20.3-rc.1",
		"dev": "dev", "3c957eb483fe": "dev", "v0.1.0-rc.1-20-g121ff7f9": "dev", "v0.1.0-20-g121ff7f9": "dev",
		"v0.1.0-dirty": "dev",
	} {
		c := Cluster{version: version}
		got, err := c.chart()
		if err != nil || got.Metadata.AppVersion != want {
			t.Errorf("%s: image %q, want %q (%v)", version, got.Metadata.AppVersion, want, err)
		}
	}
}
