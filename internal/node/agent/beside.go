// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/plan/mesh"
)

// tellMesh has the mesh plan anew with what is this node's own.
func (a *agent) tellMesh() {
	a.ownNews.Notify()
}

// markedPods are the pods whose packets to the outside of the cluster bear a code point.
func (a *agent) markedPods() []mesh.Marked {
	all := a.attacher.Marked()
	a.marked.Store(&all)
	var out []mesh.Marked
	for _, m := range all {
		out = append(out, mesh.Marked(m))
	}
	return out
}

// tellMarked tells the mesh where there are other such pods than it planned with.
func (a *agent) tellMarked() {
	if told := a.marked.Load(); told != nil && !slices.Equal(*told, a.attacher.Marked()) {
		a.tellMesh()
	}
}

// routedPods are the IPv6 addresses of pods without a bridge, as long as there is a bridge of pods that were there before
// the design was changed.
func (a *agent) routedPods() []netip.Addr {
	t := a.topology.Load()
	if t == nil || !slices.Contains(t.Bridged, 6) {
		return nil
	}
	records, err := a.ledger.List()
	if err != nil {
		a.cfg.Log.Warn("pods on a bridge may not find others of this node", "err", err)
	}
	var out []netip.Addr
	for _, rec := range records {
		if rec.Result == nil || len(rec.Network.Plugins) == 0 || rec.Network.Plugins[0].Type == "bridge" {
			continue
		}
		for _, ip := range rec.Result.IPs {
			if addr := ip.Address.Addr(); addr.Is6() {
				out = append(out, addr)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
