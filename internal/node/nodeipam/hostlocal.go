// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"encoding/json"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
)

// Allocations returns what this node has allocated and can allocate: from pools, and in host-local's directories.
func (n *Node) Allocations() (any, error) {
	g := audit.Allocations{Allocations: blockreport.Allocations{Node: n.cfg.Name, Held: []blockreport.HeldAddress{}}}
	if n.cfg.Engine != nil {
		g.Allocations = n.cfg.Engine.Allocations()
	}
	var err error
	g.HostLocal, err = n.filed()
	return g, err
}

// filed returns the contents of host-local's directories for the networks that this agent has attached or configured.
func (n *Node) filed() ([]audit.HostLocalDir, error) {
	local := hostlocal.New(hostlocal.Config{DataDir: n.cfg.AddressDir})
	requests := []ipam.Request{}
	if n.cfg.Network.Name != "" {
		requests = append(requests, ipam.Request{Network: n.cfg.Network.Name})
	}
	records, err := n.cfg.Records.List()
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		all, _ := localRequests(rec)
		requests = append(requests, all...)
	}
	var out []audit.HostLocalDir
	read := map[string]bool{}
	for _, ask := range requests {
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
		f := audit.HostLocalDir{Network: ask.Network, Dir: dir, Entries: []audit.HostLocalEntry{}}
		for _, e := range entries {
			f.Entries = append(f.Entries, audit.HostLocalEntry{Addr: e.Addr, ContainerID: e.ContainerID, IfName: e.IfName})
		}
		out = append(out, f)
	}
	return out, nil
}

// localRequests returns the host-local requests of an attachment's plugins, and how many plugins use another IPAM.
func localRequests(rec attach.Record) (requests []ipam.Request, others int) {
	for _, p := range rec.Network.Plugins {
		var conf struct{ IPAM struct{ Type string } }
		switch _ = json.Unmarshal(p.Raw, &conf); conf.IPAM.Type {
		case "":
		case (*hostlocal.Allocator)(nil).Type():
			requests = append(requests, ipam.Request{Network: rec.Network.Name, Conf: p.Raw})
		default:
			others++
		}
	}
	return requests, others
}

// Directory returns the host-local directory that all addresses of an attachment are from, empty if there is none.
func (n *Node) Directory(rec attach.Record) string {
	requests, others := localRequests(rec)
	if len(requests) != 1 || others > 0 {
		return ""
	}
	dir, err := hostlocal.New(hostlocal.Config{DataDir: n.cfg.AddressDir}).Directory(requests[0])
	if err != nil {
		return ""
	}
	return dir
}
