// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Where a node's VtepMAC comes from, the first that there is:
//
//	the back end's data   vxlan is the node's own back end, and it publishes that: random from the start.
//	VtepWords             Another back end is, or the node publishes nothing else. Nodes of an earlier version do not read
//	                      these words, and a copy of a directory may not have them. So a node first says the address that
//	                      it has, and takes a random one when all others say theirs: then all of them read this.
//	the node's name       Nothing is told.
//
// A device follows what is published and is never ahead of it, but for the first case, in which peers of every version
// follow.

// vtepData is what a node publishes as vxlan's own data.
func vtepData(n model.Node, family int) string {
	if text := Data(n, "vxlan", family); text != "null" {
		return text
	}
	return ""
}

// vtepWord is what a node says beside that.
func vtepWord(n model.Node, family int) string {
	if family == 6 {
		return n.Vtep.V6
	}
	return n.Vtep.V4
}

func vtepText(n model.Node, family int) string {
	if text := vtepData(n, family); text != "" {
		return text
	}
	return vtepWord(n, family)
}

func vtepByName(n model.Node, family int) state.MAC {
	return state.SeedMAC("vtep/" + strconv.Itoa(family) + "/" + n.Name)
}

func (p *Planner) vtepBySeed(family int) state.MAC {
	return state.SeedMAC("vtep/" + strconv.Itoa(family) + "/" + p.self.Name + "/" + p.cfg.VtepSeed)
}

// vtepInData tells whether self's VtepMAC is in what its own back end publishes.
func (p *Planner) vtepInData() bool { return p.cfg.Backend == "vxlan" && !p.cfg.VtepAlone }

// vtepWords is what self says: nothing where its back end says it all.
func (p *Planner) vtepWords(nodes []model.Node) (out model.VtepWords) {
	if p.cfg.VtepSeed == "" || p.vtepInData() && !slices.Contains(p.pools.kinds(), "vxlan") {
		return out
	}
	for _, family := range families() {
		if _, ok := p.underlay[family]; !ok {
			continue
		}
		mac, problems := p.vxlanSelf(family)
		if len(problems) == 0 && !p.vtepInData() && vtepData(p.self, family) == "" && mac == vtepByName(p.self, family) &&
			p.vtepsRead(nodes) {
			mac = p.vtepBySeed(family)
		}
		if text := p.vxlanWord(mac); family == 6 {
			out.V6 = text
		} else {
			out.V4 = text
		}
	}
	return out
}

// vtepsRead tells whether there are others, and all of them read VtepWords.
func (p *Planner) vtepsRead(nodes []model.Node) bool {
	return len(nodes) > 1 && !slices.ContainsFunc(nodes, func(n model.Node) bool {
		return n.Name != p.self.Name && n.Vtep == (model.VtepWords{})
	})
}
