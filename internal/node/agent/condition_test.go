// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestNodeCondition: a node without a podCIDR has the condition NetworkUnavailable, and another vendor's network has it
// untouched.
func TestNodeCondition(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	for i, mode := range []string{"cluster", "policy"} {
		w := k.nodes[i]
		if err := os.WriteFile(w.path("weft.yaml"), fmt.Appendf(nil, "install: {confDir: %q}\nnetwork: {mode: %s}\n",
			w.path("net.d"), mode), 0o600); err != nil {
			t.Fatal(err)
		}
		w.args = append(w.args, "--config", w.path("weft.yaml"))
	}
	k.Do("DELETE", "/api/v1/nodes/n1", nil)
	k.Do("POST", "/api/v1/nodes", fields{
		"metadata": fields{"name": "n1"},
		"status":   fields{"addresses": []fields{{"type": "InternalIP", "address": "192.168.77.11"}}},
	})
	const theirs = "True NoRouteCreated theirs"
	k.Do("PATCH", "/api/v1/nodes/n2/status", fields{"status": fields{"conditions": []fields{
		{"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated", "message": "theirs"},
	}}})
	for _, w := range k.nodes {
		w.start()
	}
	is := func(begin string) func() bool {
		return func() bool {
			_, condition := k.annotations(1)
			return strings.HasPrefix(condition, begin)
		}
	}
	k.until("no podCIDR", is(`True NoPodCIDR node "n1" has no podCIDR`))
	k.Do("PATCH", "/api/v1/nodes/n1", fields{
		"spec": fields{"podCIDR": "10.100.1.0/24", "podCIDRs": []string{"10.100.1.0/24"}},
	})
	k.until("a podCIDR", is("False WeftIsUp"))
	if _, condition := k.annotations(2); condition != theirs {
		t.Errorf("another vendor's network has the condition %q", condition)
	}
}
