// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
)

// hosts are the host endpoints: those of this node have chains in the node's table.
type hosts struct {
	node      string
	tunnels   []Tunnel
	cluster   *cluster
	compiler  *compiler
	tables    *tables
	endpoints *endpoints

	stored     map[string]model.HostEndpoint
	controller model.HostEndpointController
	felix      map[string]model.FelixConfiguration
	interfaces []hostendpoint.Interface

	// changed: the host endpoints of the cluster may be others. dirty: the chains of this node's may be.
	changed, dirty bool
	// placed are the host endpoints of this node's interfaces, effective its configuration, used the chains in the table,
	// and links the interfaces of its pods.
	placed    []hostendpoint.Placed
	effective model.FelixConfiguration
	used      []*chainSpec
	links     []string
	inTable   bool
}

// Tunnel is a protocol of the mesh between nodes: a port of UDP, or a protocol's number.
type Tunnel struct {
	Port   uint16
	Number uint8
}

func newHosts(cfg Config, c *cluster, m *compiler, ts *tables, es *endpoints) *hosts {
	return &hosts{
		node: cfg.Node, tunnels: cfg.Tunnels, cluster: c, compiler: m, tables: ts, endpoints: es,
		stored: map[string]model.HostEndpoint{}, felix: map[string]model.FelixConfiguration{},
	}
}

func (h *hosts) set(in model.HostEndpoint) {
	if was, is := h.stored[in.Name]; !is || !was.Equal(in) {
		h.stored[in.Name], h.changed = in, true
	}
}

func (h *hosts) del(name string) {
	delete(h.stored, name)
	h.changed = true
}

func (h *hosts) setController(c model.HostEndpointController) { h.controller, h.changed = c, true }

func (h *hosts) setFelix(name string, c *model.FelixConfiguration) {
	delete(h.felix, name)
	if c != nil {
		h.felix[name] = *c
	}
	h.dirty = true
}

func (h *hosts) setInterfaces(all []hostendpoint.Interface) {
	if !slices.EqualFunc(h.interfaces, all, func(a, b hostendpoint.Interface) bool {
		return a.Name == b.Name && a.Master == b.Master && slices.Equal(a.Addrs, b.Addrs)
	}) {
		h.interfaces, h.changed, h.dirty = all, true, true
	}
}

// nodesChanged: nodes have other labels or addresses.
func (h *hosts) nodesChanged() {
	h.changed = h.changed || h.controller.Enabled
	h.dirty = h.dirty || len(h.felix) > 0
}

// any reports whether there are host endpoints, of any node, or a configuration that needs none.
func (h *hosts) any() bool {
	return len(h.stored) > 0 || h.controller.Enabled || slices.ContainsFunc(slices.Collect(maps.Values(h.felix)),
		func(f model.FelixConfiguration) bool { return f.EndpointToHost == model.EndpointToHostDrop })
}

// needsInterfaces reports whether this node's interfaces decide anything.
func (h *hosts) needsInterfaces() bool {
	return h.any() && (slices.ContainsFunc(slices.Collect(maps.Values(h.stored)), func(e model.HostEndpoint) bool {
		return e.Node == h.node && e.Interface == ""
	}) || len(h.controller.Templates) > 0 || h.endpoints.has(model.PointPort) || h.endpoints.has(model.PointPod))
}

// refresh computes the host endpoints of the cluster again, and reports whether they are others.
func (h *hosts) refresh() bool {
	if !h.changed {
		return false
	}
	h.changed = false
	var all []model.HostEndpoint
	for _, e := range h.stored {
		if !e.Automatic || !h.controller.Enabled { // they may be of a controller that runs no more
			all = append(all, e)
		}
	}
	for name, n := range h.cluster.nodes {
		var names []string
		if name == h.node {
			for _, i := range h.interfaces {
				names = append(names, i.Name)
			}
		}
		all = append(all, hostendpoint.Automatic(h.controller, n.facts(name), names)...)
	}
	slices.SortFunc(all, func(a, b model.HostEndpoint) int { return strings.Compare(a.Name, b.Name) })
	if slices.EqualFunc(all, h.cluster.hosts, model.HostEndpoint.Equal) {
		return false
	}
	h.cluster.hosts, h.dirty = all, true
	return true
}

// hostView is how policies see the labels of a host endpoint.
func hostView(h model.HostEndpoint) model.LabelView { return model.Labels(h.Labels) }

// update makes the chains in the node's table those of the host endpoints.
func (h *hosts) update() {
	if !h.dirty {
		return
	}
	h.dirty = false
	var labels map[string]string
	if n := h.cluster.nodes[h.node]; n != nil {
		labels = n.facts(h.node).Labels
	}
	h.effective = hostendpoint.Effective(slices.Collect(maps.Values(h.felix)), h.node, labels)
	h.placed = hostendpoint.Place(h.cluster.hosts, h.node, h.interfaces)
	links := h.endpoints.hostLinks(h.interfaces)
	if h.effective.EndpointToHost == model.EndpointToHostDrop {
		// A host shim is otherwise like every interface of the node: host endpoints for all of them apply.
		links = append(links, h.shims()...)
		slices.Sort(links)
	}
	w := hostWriter{hosts: h}
	base := w.write()
	if len(base)+len(h.used) == 0 {
		h.links = links
		return
	}
	t := h.tables.at(EnforcementPoint{})
	if !slices.Equal(links, h.links) {
		h.links = links
		for _, c := range h.used {
			if now := t.chains[c.name]; strings.HasPrefix(c.name, workloadsChain) {
				t.touchChain(c.name)
				t.fillChain(now)
			}
		}
	}
	for _, c := range w.used {
		t.useChain(c)
	}
	for _, c := range h.used {
		t.dropChain(c.name)
	}
	h.used, t.host = w.used, base
	if is := len(base) > 0; is != h.inTable {
		if h.inTable = is; is {
			t.users++
		} else {
			t.users--
		}
	}
}

// has reports whether policies of an endpoint of this node are enforced in such a place.
func (es *endpoints) has(point model.PolicyPoint) bool {
	for _, e := range es.all {
		if e.Point() == point {
			return true
		}
	}
	return false
}

// hostLinks returns the node's interfaces by which its pods reach it, sorted: those of routed pods, and the bridges of
// others.
func (es *endpoints) hostLinks(interfaces []hostendpoint.Interface) []string {
	out := map[string]bool{}
	for _, e := range es.all {
		switch {
		case e.HostLink == "":
		case e.HostEnd == model.HostEndPort:
			for _, i := range interfaces {
				if i.Name == e.HostLink && i.Master != "" {
					out[i.Master] = true
				}
			}
		default:
			out[e.HostLink] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}
