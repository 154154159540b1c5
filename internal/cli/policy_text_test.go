// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// TestWhatAPlaceCannotHold: policy show names what is open where rules stand in the pod itself, and nothing of the kind
// where they stand on the node's side.
func TestWhatAPlaceCannotHold(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint compiled.Interface
		open     bool
	}{
		"macvlan":       {compiled.Interface{Point: model.PointPod}, true},
		"routed":        {compiled.Interface{Point: model.PointHost, HostLink: "cali1"}, false},
		"bridge's port": {compiled.Interface{Point: model.PointPort, HostLink: "veth1"}, false},
	} {
		text := at(c.endpoint)
		for _, word := range []string{"enforced in the pod", "NET_RAW", "NET_ADMIN", "docs/security.md"} {
			if strings.Contains(text, word) != c.open {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
}
