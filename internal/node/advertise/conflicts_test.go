// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestConflicts: an address is refused if another node uses it: in its block, in its podCIDR or by a pod that still
// exists; it is allowed if it is this node's, or its pod is gone.
func TestConflicts(t *testing.T) {
	addr := netip.MustParseAddr
	c := &model.Cluster{
		Self: "n1",
		Nodes: []model.Node{
			{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}},
			{
				Name: "n2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24")},
				Unmanaged: []model.UnmanagedAddress{
					{Addr: addr("192.0.2.1"), Pod: "shop/there"},
					{Addr: addr("192.0.2.2"), Pod: "shop/gone"},
					{Addr: addr("192.0.2.3"), Pod: "shop/web"},
				},
			},
		},
		Pods: []model.Pod{{Namespace: "shop", Name: "there", Node: "n2"}, {Namespace: "shop", Name: "web", Node: "n2"}},
	}
	conflicts := Conflicts{Cluster: func() *model.Cluster { return c }}
	for a, want := range map[string]string{
		"10.1.0.9":  "",
		"10.2.0.9":  "in the podCIDR 10.2.0.0/24 of node n2",
		"192.0.2.1": "taken by pod shop/there on node n2",
		"192.0.2.2": "",
		"192.0.2.3": "", // the same pod, which moves
		"192.0.2.4": "",
	} {
		err := conflicts.Check(t.Context(), addr(a), model.PodRef{Namespace: "shop", Name: "web"})
		var f *model.Error
		if (err == nil) != (want == "") || err != nil &&
			(!strings.Contains(err.Error(), want) || !errors.As(err, &f) || f.Code != model.CodeInUse) {
			t.Errorf("%s: %v, want %q", a, err, want)
		}
	}
	if err := (Conflicts{
		Cluster: func() *model.Cluster { return nil },
	}).Check(t.Context(), addr("10.2.0.9"), model.PodRef{}); err != nil {
		t.Errorf("before the cluster is known: %v", err)
	}
}
