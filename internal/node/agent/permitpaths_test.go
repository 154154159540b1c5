// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/cluster/config"
)

// TestPermitPaths: networks in Kubernetes may use the directory that the node's configuration permits; without a
// permitted directory only the default.
func TestPermitPaths(t *testing.T) {
	for _, tc := range []struct {
		dir             string
		permitted, want []string
	}{
		{"/data/addresses", []string{"/var/lib/cni"}, []string{"/var/lib/cni", "/data/addresses"}},
		{"/data/addresses", []string{}, []string{"/data/addresses"}},
		{"", nil, []string{}},
	} {
		cfg := Config{AddressDir: tc.dir, Network: config.Network{PermitPaths: tc.permitted}}
		if got := permitPaths(cfg); !slices.Equal(got, tc.want) || got == nil {
			t.Errorf("%q, %q: %q, want %q", tc.dir, tc.permitted, got, tc.want)
		}
	}
}
