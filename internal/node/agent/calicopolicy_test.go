// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
)

// TestCalicoPoliciesAreNamed: an agent warns of Calico's policies that it does not enforce, and lists them for
// weft doctor.
func TestCalicoPoliciesAreNamed(t *testing.T) {
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	n := p.nodes[0]
	path := filepath.Join(n.path("state"), calico.PoliciesFile)
	p.write(
		store.NewObject(
			[]byte(`{"apiVersion":"crd.projectcalico.org/v1","kind":"GlobalNetworkPolicy","metadata":{"name":"deny"},"spec":{"preDNAT":true,"egress":[{"action":"Deny"}]}}`),
		),
	)
	n.kill()
	n.start()
	p.until("the agent notes the policy", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == `["GlobalNetworkPolicy deny (spec.egress is ignored under spec.preDNAT: a destination is translated where packets come in)"]`
	})
	p.until("the agent warns of the policy", func() bool {
		return strings.Contains(n.log(), "objects of Calico are not enforced") &&
			strings.Contains(n.log(), "1 (GlobalNetworkPolicy deny (spec.egress is ignored under spec.preDNAT: a destination is translated where packets come in))")
	})
	if err := p.store.Delete(t.Context(), store.Key{Group: "crd.projectcalico.org", Kind: "GlobalNetworkPolicy", Name: "deny"},
		""); err != nil {
		t.Fatal(err)
	}
	n.kill()
	n.start()
	p.until("the note says that there is none", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == `[]`
	})
}
