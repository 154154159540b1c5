// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// replaceMAC updates the node to a guest whose MAC address differs from the pod link's: permanent neighbors at the
// node's end of that link, and the tables of the source guard.
func (p *planner) replaceMAC() {
	guest, err := state.ParseMAC(p.out.Device.MAC)
	if err != nil || guest == p.pod.Link.MAC {
		return
	}
	end := p.Answers[otherEnd(p.names.pod)].Link.Name
	for _, n := range p.Answers[neighs(state.Host, end)].Neighs {
		own := slices.ContainsFunc(p.pod.Addrs, func(a state.Addr) bool { return a.Prefix.Addr() == n.IP })
		if !own || n.MAC != p.pod.Link.MAC {
			continue
		}
		p.out.Restore.Host.Neighs = append(p.out.Restore.Host.Neighs, n)
		n.MAC = guest
		p.out.Fragment.Host.Neighs = append(p.out.Fragment.Host.Neighs, n)
	}
	for _, t := range p.Attached[p.names.pod] {
		if t, any := elementsWithMAC(t, p.pod.Link.MAC.String(), guest.String()); any {
			p.out.Fragment.Host.Tables = append(p.out.Fragment.Host.Tables, t)
		}
	}
}

// elementsWithMAC returns a shared table with copies of the elements that contain a MAC address, with the new one; any
// reports whether there are some.
func elementsWithMAC(t state.Table, was, is string) (out state.Table, any bool) {
	if !t.Shared {
		return t, false
	}
	t.Sets = slices.Clone(t.Sets)
	for i, set := range t.Sets {
		t.Sets[i].Elements = nil
		for _, e := range set.Elements {
			at := slices.Index(e.Key, was)
			if at < 0 {
				continue
			}
			e.Key = slices.Clone(e.Key)
			e.Key[at] = is
			t.Sets[i].Elements = append(t.Sets[i].Elements, e)
			any = true
		}
	}
	return t, any
}
