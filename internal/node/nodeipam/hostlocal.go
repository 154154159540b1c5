// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"encoding/json"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
)

// Allocations are what this node may allocate and has allocated: from pools, and in host-local's directories.
func (n *Node) Allocations() (any, error) {
	g := audit.Allocations{Allocations: blocks.Allocations{Node: n.cfg.Name, Held: []blocks.HeldAddress{}}}
	if n.cfg.Engine != nil {
		g.Allocations = n.cfg.Engine.Allocations()
	}
	var err error
	g.Filed, err = n.filed()
	return g, err
}

// filed is what host-local's directories of the networks hold that this agent has attached, or whose configuration it
// has written.
func (n *Node) filed() ([]audit.Filed, error) {
	local := hostlocal.New(hostlocal.Config{DataDir: n.cfg.AddressDir})
	asks := []ipam.Ask{}
	if n.cfg.Network.Name != "" {
		asks = append(asks, ipam.Ask{Network: n.cfg.Network.Name})
	}
	records, err := n.cfg.Records.List()
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		all, _ := localAsks(rec)
		asks = append(asks, all...)
	}
	var out []audit.Filed
	read := map[string]bool{}
	for _, ask := range asks {
		dir, entries, err := local.List(ask)
		if read[dir] {
			continue
		}
		if err != nil {
			return nil, err
		}
		read[dir] = true
		if len(entries) == 0 && len(ask.Conf) == 0 {
			continue
		}
		f := audit.Filed{Network: ask.Network, Dir: dir, Entries: []audit.FiledAddress{}}
		for _, e := range entries {
			f.Entries = append(f.Entries, audit.FiledAddress{Addr: e.Addr, ContainerID: e.ContainerID, IfName: e.IfName})
		}
		out = append(out, f)
	}
	return out, nil
}

// localAsks are what an attachment's plugins have asked host-local, and how many others have asked another IPAM.
func localAsks(rec attach.Record) (asks []ipam.Ask, others int) {
	for _, p := range rec.Network.Plugins {
		var conf struct{ IPAM struct{ Type string } }
		switch _ = json.Unmarshal(p.Raw, &conf); conf.IPAM.Type {
		case "":
		case (*hostlocal.Allocator)(nil).Type():
			asks = append(asks, ipam.Ask{Network: rec.Network.Name, Conf: p.Raw})
		default:
			others++
		}
	}
	return asks, others
}

// Directory is the directory of host-local's that all addresses of an attachment are from, empty where there is none.
func (n *Node) Directory(rec attach.Record) string {
	asks, others := localAsks(rec)
	if len(asks) != 1 || others > 0 {
		return ""
	}
	dir, err := hostlocal.New(hostlocal.Config{DataDir: n.cfg.AddressDir}).Directory(asks[0])
	if err != nil {
		return ""
	}
	return dir
}
