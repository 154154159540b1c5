// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestHostTapIsTheEnd: the tap on the node is the node's end of the interface, for policy and others.
func TestHostTapIsTheEnd(t *testing.T) {
	const mark = "weft:net/c1/eth0"
	f := state.Fragment{}
	f.Host.Links = []state.Link{
		{Name: "ifb0", Kind: state.Ifb, Alias: mark}, {Name: "cali1", Kind: state.Tap, Alias: mark},
	}
	f.Pod.Links = []state.Link{{Name: "eth0", Kind: state.Tap, Alias: mark}}
	r := Record{
		Request: model.Request{Network: "net", ContainerID: "c1", IfName: "eth0"},
		Acts:    []Act{{Kind: ActApply, Fragment: &f, Guests: []model.GuestConfig{{Link: "cali1", OnNode: true}}}},
	}
	if got := r.HostLink(); got != "cali1" {
		t.Errorf("the node's end is %q", got)
	}
	if g := r.Guests(); len(g) != 1 || g[0].Link != "cali1" {
		t.Errorf("guests %+v", g)
	}
	f.Pod.Links[0].Alias = "weft:net/c2/eth0"
	if got := r.HostLink(); got != "" {
		t.Errorf("another one's end is %q", got)
	}
}
