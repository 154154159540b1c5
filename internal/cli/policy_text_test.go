// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// TestEnforcementPoint checks that policy show warns that processes can bypass rules in the pod's namespace, and does
// not warn about rules on the host side.
func TestEnforcementPoint(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint compiled.Interface
		open     bool
	}{
		"macvlan":       {compiled.Interface{Point: model.PointPod}, true},
		"routed":        {compiled.Interface{Point: model.PointHost, HostLink: "cali1"}, false},
		"bridge's port": {compiled.Interface{Point: model.PointPort, HostLink: "veth1"}, false},
	} {
		text := enforcementPoint(c.endpoint)
		for _, word := range []string{"enforced in the pod's namespace", "NET_RAW", "NET_ADMIN", "docs/design/security.md"} {
			if strings.Contains(text, word) != c.open {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
}
