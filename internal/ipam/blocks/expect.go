// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// roomy is how many blocks a range must have for each node, for all of them to hold one that they may never need.
const roomy = 4

// Expect says which configurations (plugin objects) may come, in a cluster of so many nodes: where a range has room for
// that, a block is claimed before the first pod asks. What was expected before and is not any more goes back in time.
func (e *Engine) Expect(confs []json.RawMessage, nodes int) {
	var wants []want
	var cluster []clusterConf
	for _, conf := range confs {
		if typeOf(conf) == TypeCalico {
			if c, err := e.chooser.clusterSettings(ipam.Ask{Conf: conf}); err == nil {
				cluster = append(cluster, c)
			}
			continue
		}
		if s, err := e.chooser.settings(ipam.Ask{Conf: conf}); err == nil {
			wants = append(wants, s.wants...)
		}
	}
	e.mem.mu.Lock()
	e.chooser.cluster, e.chooser.nodes = cluster, nodes
	for _, p := range e.mem.pools {
		clear(p.expected)
	}
	e.chooser.expect(wants, nodes)
	if len(cluster) > 0 && !e.mem.used { // the pools are to be known
		e.mem.used = true
		e.kick.Notify()
	}
	e.mem.mu.Unlock()
	e.chooser.expectCluster()
}

// expectCluster expects what the cluster's network gives on this node, by the pools that there are now.
func (ch *chooser) expectCluster() {
	ch.mem.mu.Lock()
	defer ch.mem.mu.Unlock()
	if len(ch.cluster) == 0 || !ch.mem.catalog.known {
		return
	}
	var wants []want
	for _, c := range ch.cluster {
		for _, f := range c.families {
			var some []want
			var err error
			if words := c.pools[f]; len(words) > 0 {
				some, err = ch.asked(f, words, "", model.UseWorkload)
			} else {
				some, err = ch.automatic(f, ipam.Ask{})
			}
			if err == nil {
				wants = append(wants, some[0])
			}
		}
	}
	for name := range ch.mem.catalog.pools {
		if p := ch.mem.pools[name]; p != nil {
			clear(p.expected)
		}
	}
	ch.expect(wants, ch.nodes)
}

func typeOf(conf json.RawMessage) string {
	var c struct{ IPAM struct{ Type string } }
	_ = json.Unmarshal(conf, &c) // one that cannot be read has no type
	return c.IPAM.Type
}

// expect has blocks claimed for what may be wanted; the caller holds the lock.
func (ch *chooser) expect(wants []want, nodes int) {
	for _, w := range wants {
		size := model.BlockSize(w.network, count(w.spans))
		if r, known := ch.region(w); known {
			size = r.BlockSize
		}
		if count(w.spans)>>(w.network.Addr().BitLen()-size) < roomy*max(nodes, 1) {
			continue
		}
		p := ch.mem.pool(w.pool)
		p.expected[w.id()] = w
		if d := p.wants[w.id()]; d != nil {
			d.last = ch.clock.now()
			continue
		}
		p.wants[w.id()] = &demand{want: w, last: ch.clock.now()}
		ch.kick.Notify()
	}
}

// region is how the beginning of a want is cut, where that is known; the caller holds the lock.
func (ch *chooser) region(w want) (model.AddressRegion, bool) {
	if len(w.spans) == 0 {
		return model.AddressRegion{}, false
	}
	p := ch.mem.pools[w.pool]
	if p == nil || len(p.spec.Regions) == 0 {
		p = &pool{spec: ch.mem.catalog.pools[w.pool]}
	}
	return p.region(w.spans[0].from)
}

// Shared are the plugin objects of networks whose addresses come from pools.
func Shared(networks []model.NetworkAttachment) []json.RawMessage {
	var out []json.RawMessage
	for _, n := range networks {
		var list struct {
			Plugins []json.RawMessage `json:"plugins"`
		}
		if json.Unmarshal([]byte(n.Config), &list) != nil {
			continue // who asks for it is told
		}
		if len(list.Plugins) == 0 {
			list.Plugins = []json.RawMessage{json.RawMessage(n.Config)}
		}
		for _, p := range list.Plugins {
			switch typeOf(p) {
			case TypeWeft, TypeWhereabouts, TypeCalico:
				out = append(out, p)
			}
		}
	}
	return out
}
