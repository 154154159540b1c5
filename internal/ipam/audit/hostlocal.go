// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
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

// leak is what an entry without an attachment needs.
func (l NodeState) leak(f HostLocalDir, e HostLocalEntry) string {
	if user := l.user(e); user != "" {
		return user + " has it, delete its pod; --fix keeps it"
	}
	return fmt.Sprintf("a GC of network %q frees it", f.Network)
}

// user returns the interface that an entry's address may be in use by: one in a pod that has it, or one on the node that
// is marked with the entry's container; empty if there is none.
func (l NodeState) user(e HostLocalEntry) string {
	for _, s := range l.Kernel {
		if s.Addr == e.Addr {
			return s.IfName + " in " + s.Netns
		}
	}
	for _, mark := range l.Marks {
		if e.ContainerID != "" && strings.Contains(mark, "/"+e.ContainerID+"/") {
			return "the interface marked " + mark
		}
	}
	return ""
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
				p.foundOnNode("address %s is reserved in %s for %s, and the ledger has no such attachment: %s", e.Addr, f.Dir, name(key),
					l.leak(f, e))
				if l.Free != nil && l.user(e) == "" {
					last := &p.Findings[len(p.Findings)-1]
					last.Fix = "the address is free"
					last.fix = func(ctx context.Context, _ store.Objects) error { return l.Free(ctx, f.Dir, e) }
				}
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
