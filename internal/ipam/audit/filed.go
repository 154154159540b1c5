// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// Filed is what a directory of host-local's holds of one network.
type Filed struct {
	Network string         `json:"network"`
	Dir     string         `json:"dir"`
	Entries []FiledAddress `json:"entries"`
}

// FiledAddress is one address there, with its attachment.
type FiledAddress struct {
	Addr        netip.Addr `json:"address"`
	ContainerID string     `json:"containerID"`
	// IfName is empty in files of old versions of the reference plugin.
	IfName string `json:"ifName,omitempty"`
}

// Both returns what is filed at two times: what came or went meanwhile is not in it.
func Both(before, after []Filed) []Filed {
	var out []Filed
	for _, b := range before {
		i := slices.IndexFunc(after, func(a Filed) bool { return a.Dir == b.Dir })
		if i < 0 {
			continue
		}
		b.Entries = slices.DeleteFunc(slices.Clone(b.Entries), func(e FiledAddress) bool {
			return !slices.Contains(after[i].Entries, e)
		})
		out = append(out, b)
	}
	return out
}

// compareFiled looks for addresses that no attachment has, and for attachments without theirs.
func (p *Report) compareFiled(l Local) {
	ledger := map[model.AttachmentKey]bool{}
	containers := map[string]bool{}
	for _, r := range l.Ledger {
		ledger[r.AttachmentKey] = true
		containers[r.ContainerID] = true
	}
	for _, f := range l.Filed {
		has := map[netip.Addr]bool{}
		for _, e := range f.Entries {
			has[e.Addr] = true
			key := model.AttachmentKey{Network: f.Network, ContainerID: e.ContainerID, IfName: e.IfName}
			if !ledger[key] && (e.IfName != "" || !containers[e.ContainerID]) {
				p.local("address %s is reserved in %s for %s, and the ledger has no such attachment: a GC of network %q frees it",
					e.Addr, f.Dir, name(key), f.Network)
			}
		}
		for _, r := range l.Ledger {
			for _, a := range r.Addrs {
				if r.Done && r.Old && r.Filed == f.Dir && !has[a] {
					p.local(
						"address %s is in the ledger for %s, and %s does not have it: it may be given to somebody else, make the pod anew", a, name(r.AttachmentKey), f.Dir,
					)
				}
			}
		}
	}
}
