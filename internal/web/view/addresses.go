// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

// Addresses are the pools, blocks and addresses of a cluster.
type Addresses struct {
	// Known: it is known which addresses are in use.
	Known  bool       `json:"known"`
	Pools  []UsageRow `json:"pools"`
	Blocks []UsageRow `json:"blocks"`
	// Users have addresses, those that are searched for; MoreUsers are not in the list.
	Users     []UserRow `json:"users"`
	MoreUsers int       `json:"moreUsers,omitempty"`
	// MoreFindings are not in Findings.
	Findings     []Finding `json:"findings"`
	MoreFindings int       `json:"moreFindings,omitempty"`
}

// UsageRow is a pool, a block of a node, or a node's range.
type UsageRow struct {
	Name string `json:"name"`
	Node string `json:"node,omitempty"`
	Pool string `json:"pool,omitempty"`
	// Used of Total addresses, as text: a pool of IPv6 has more than a number holds. Percent is the share, rounded up.
	Used    int    `json:"used"`
	Total   string `json:"total"`
	Free    string `json:"free"`
	Percent int    `json:"percent"`
	// Notes say what is special: lent addresses, a pool that is disabled.
	Notes []string `json:"notes"`
}

// UserRow is an address and what has it.
type UserRow struct {
	Addr  string `json:"addr"`
	User  string `json:"user"` // namespace/name of a pod, or a claim, or a reservation
	Kind  string `json:"kind"` // pod, claim, reservation
	Node  string `json:"node"`
	Block string `json:"block"`
}

// maxUsers limits the table of addresses.
const maxUsers = 200

// NewAddresses returns the view of addresses. find is a part of an address, a name or a node.
func NewAddresses(r audit.Report, pods []model.Pod, find string) Addresses {
	u := r.Usage()
	v := Addresses{
		Known: u.Known, Pools: []UsageRow{}, Blocks: []UsageRow{}, Users: []UserRow{}, Findings: []Finding{},
	}
	for _, p := range u.Pools {
		v.Pools = append(v.Pools, usageRow(p, p.Pool, poolNotes(r.Pools, p.Pool)))
	}
	for _, b := range u.Blocks {
		v.Blocks = append(v.Blocks, usageRow(b, b.CIDR.String(), blockNotes(r.Blocks, *b.CIDR)))
	}
	for _, b := range u.Ranges {
		v.Blocks = append(v.Blocks, usageRow(b, b.CIDR.String(), []string{"range of the node"}))
	}
	v.MoreFindings = max(0, len(r.Findings)-maxFindings)
	for _, f := range r.Findings[:len(r.Findings)-v.MoreFindings] {
		hint := "weft ipam check"
		if f.Fix != "" {
			hint = "weft ipam check --fix: " + f.Fix
		}
		v.Findings = append(v.Findings, Finding{Level: "warn", Where: f.Object, What: f.Msg, Hint: hint})
	}
	v.users(r, pods, find)
	return v
}

// users lists the addresses in use.
func (v *Addresses) users(r audit.Report, pods []model.Pod, find string) {
	type address struct {
		addr netip.Addr
		UserRow
	}
	var all []address
	add := func(a netip.Addr, kind, user, node string) {
		row := UserRow{Addr: a.String(), User: user, Kind: kind, Node: node}
		if i := slices.IndexFunc(r.Blocks, func(b model.AddressBlock) bool { return b.CIDR.Contains(a) }); i >= 0 {
			row.Block = r.Blocks[i].CIDR.String()
			row.Node = cmp.Or(row.Node, r.Blocks[i].Node)
		}
		search := PodRow{Name: user, Addrs: []string{row.Addr, row.Block}, Networks: []string{row.Node}}
		if search.matches(find) {
			all = append(all, address{a, row})
		}
	}
	for _, p := range pods {
		if p.HostNetwork || p.Phase == "Succeeded" || p.Phase == "Failed" {
			continue
		}
		for _, a := range p.IPs {
			add(a, "pod", p.Namespace+"/"+p.Name, p.Node)
		}
	}
	for _, c := range r.VMs {
		for _, a := range c.Addrs {
			add(a, "VM", c.VM+" (claim "+c.Claim+")", c.Node)
		}
	}
	for _, p := range r.Pools {
		for _, one := range p.Reserved {
			add(one.Addr, "reservation", one.Owner, "")
		}
	}
	slices.SortFunc(all, func(a, b address) int { return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.User, b.User)) })
	for _, a := range all[:min(len(all), maxUsers)] {
		v.Users = append(v.Users, a.UserRow)
	}
	v.MoreUsers = len(all) - len(v.Users)
}

func usageRow(u audit.Usage, name string, notes []string) UsageRow {
	row := UsageRow{Name: name, Node: u.Node, Pool: u.Pool, Used: u.Used, Total: number(u.Total), Free: number(u.Free), Notes: notes}
	if u.Total.Sign() > 0 {
		share := new(big.Int).Mul(big.NewInt(int64(u.Used)), big.NewInt(100))
		share.Add(share, new(big.Int).Sub(u.Total, big.NewInt(1))).Div(share, u.Total)
		row.Percent = int(share.Int64())
	}
	return row
}

// number returns a number, a large one as a power of two.
func number(n *big.Int) string {
	const exact = 32 // bits
	if n.BitLen() <= exact {
		return n.String()
	}
	return fmt.Sprintf("2^%d", new(big.Int).Sub(n, big.NewInt(1)).BitLen())
}

func poolNotes(all []model.AddressPool, name string) []string {
	notes := []string{}
	for _, p := range all {
		if p.Name != name {
			continue
		}
		for _, r := range p.Regions {
			notes = append(notes, r.CIDR.String())
		}
		if p.Disabled {
			notes = append(notes, "disabled")
		}
		if p.Deleted {
			notes = append(notes, "is being deleted")
		}
		for _, n := range p.ExhaustedOn {
			notes = append(notes, "exhausted on "+n)
		}
		for _, x := range p.Excluded {
			notes = append(notes, "without "+x.CIDR.String())
		}
	}
	return notes
}

func blockNotes(all []model.AddressBlock, cidr netip.Prefix) []string {
	notes := []string{}
	for _, b := range all {
		if b.CIDR != cidr {
			continue
		}
		if b.Orphaned {
			notes = append(notes, "its node is deleted")
		}
		if len(b.Lent) > 0 {
			notes = append(notes, fmt.Sprintf("lends %d", len(b.Lent)))
		}
		if len(b.Requested) > 0 {
			notes = append(notes, fmt.Sprintf("%d requested", len(b.Requested)))
		}
	}
	return notes
}
