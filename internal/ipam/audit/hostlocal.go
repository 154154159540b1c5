// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// HostLocalDir has the entries of one network in host-local's directory.
type HostLocalDir struct {
	Network string           `json:"network"`
	Dir     string           `json:"dir"`
	Entries []HostLocalEntry `json:"entries"`
}

// HostLocalEntry is an address in it, with its attachment.
type HostLocalEntry struct {
	Addr        netip.Addr `json:"address"`
	ContainerID string     `json:"containerID"`
	// IfName is empty in files of old versions of the reference plugin.
	IfName string `json:"ifName,omitempty"`
}

// InBoth returns the entries of two readings, without those that changed between them.
func InBoth(before, after []HostLocalDir) []HostLocalDir {
	var out []HostLocalDir
	for _, b := range before {
		i := slices.IndexFunc(after, func(a HostLocalDir) bool { return a.Dir == b.Dir })
		if i < 0 {
			continue
		}
		b.Entries = slices.DeleteFunc(slices.Clone(b.Entries), func(e HostLocalEntry) bool {
			return !slices.Contains(after[i].Entries, e)
		})
		out = append(out, b)
	}
	return out
}

// compareHostLocal finds entries without an attachment, and attachments without an entry.
func (p *Report) compareHostLocal(l NodeState) {
	ledger := map[model.AttachmentKey]bool{}
	containers := map[string]bool{}
	for _, r := range l.Ledger {
		ledger[r.AttachmentKey] = true
		containers[r.ContainerID] = true
	}
	for _, f := range l.HostLocal {
		has := map[netip.Addr]bool{}
		for _, e := range f.Entries {
			has[e.Addr] = true
			key := model.AttachmentKey{Network: f.Network, ContainerID: e.ContainerID, IfName: e.IfName}
			if !ledger[key] && (e.IfName != "" || !containers[e.ContainerID]) {
				p.foundOnNode("address %s is reserved in %s for %s, and the ledger has no such attachment: a GC of network %q frees it",
					e.Addr, f.Dir, name(key), f.Network)
			}
		}
		for _, r := range l.Ledger {
			for _, a := range r.Addrs {
				if r.Done && r.Old && r.HostLocalDir == f.Dir && !has[a] {
					p.foundOnNode(
						"address %s is in the ledger for %s, and %s does not have it: it may be allocated again, re-create the pod", a, name(r.AttachmentKey), f.Dir,
					)
				}
			}
		}
	}
}
