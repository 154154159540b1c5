// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"

	"github.com/weft-net/weft/internal/node/fastpath"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// buildFastPath creates what keeps the fast path of established flows.
func (a *agent) buildFastPath() *fastpath.FastPath {
	c := fastpath.Config{
		Mode: cmp.Or(a.cfg.Network.FastPath, fastpath.Off), Host: a.own.host, Records: a.own.ledger, Log: a.cfg.Log,
		After: a.cfg.After,
	}
	if a.own.settings != nil {
		c.Settings = a.own.settings
	}
	if a.data.facts != nil {
		c.Topology = func() (mesh.Topology, error) {
			s, err := a.overlay.Status()
			return s.Topology, err
		}
	}
	return fastpath.New(c)
}
