// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
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
	for _, conf := range confs {
		if s, err := e.settings(ipam.Ask{Conf: conf}); err == nil {
			wants = append(wants, s.wants...)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.pools {
		clear(p.expected)
	}
	for _, w := range wants {
		size := model.BlockSize(w.network, count(w.spans))
		if r, known := e.region(w); known {
			size = r.BlockSize
		}
		if count(w.spans)>>(w.network.Addr().BitLen()-size) < roomy*max(nodes, 1) {
			continue
		}
		p := e.pool(w.pool)
		p.expected[w.id()] = w
		p.wants[w.id()] = &demand{w, e.cfg.Now()}
		e.wake()
	}
}

// region is how the beginning of a want is cut, where that is known; the caller holds the lock.
func (e *Engine) region(w want) (model.AddressRegion, bool) {
	p := e.pools[w.pool]
	if p == nil || len(w.spans) == 0 {
		return model.AddressRegion{}, false
	}
	return p.region(w.spans[0].from)
}

// coverExpected makes sure that pools have what is expected of them. The caller has the pool's turn.
func (e *Engine) coverExpected(ctx context.Context, p *pool) error {
	e.mu.Lock()
	var wants []want
	for _, w := range p.expected {
		wants = append(wants, w)
	}
	e.mu.Unlock()
	for _, w := range wants {
		if err := e.cover(ctx, p, w); err != nil {
			return err
		}
	}
	return nil
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
			var conf struct{ IPAM struct{ Type string } }
			if json.Unmarshal(p, &conf) == nil && (conf.IPAM.Type == TypeWeft || conf.IPAM.Type == TypeWhereabouts) {
				out = append(out, p)
			}
		}
	}
	return out
}
