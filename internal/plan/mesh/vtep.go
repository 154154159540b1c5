// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// vteps are the addresses of the nodes' ends of VXLAN's tunnels.
type vteps struct{ p *Planner }

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

// bySeed is the one that is random from node to node and life to life.
func (v vteps) bySeed(family int) state.MAC {
	return state.SeedMAC("vtep/" + strconv.Itoa(family) + "/" + v.p.self.Name + "/" + v.p.cfg.VtepSeed)
}

// inData reports whether self's VtepMAC is in what its own back end publishes.
func (v vteps) inData() bool { return v.p.cfg.Backend == "vxlan" && !v.p.cfg.VtepAlone }

// words is what self says: nothing where its back end says it all.
func (v vteps) words(nodes []model.Node) (out model.VtepWords) {
	if v.p.cfg.VtepSeed == "" || v.inData() && !slices.Contains(v.p.pools.kinds(), "vxlan") {
		return out
	}
	for _, family := range families() {
		if _, ok := v.p.underlay[family]; !ok {
			continue
		}
		mac, problems := v.self(family)
		if len(problems) == 0 && !v.inData() && vtepData(v.p.self, family) == "" && mac == vtepByName(v.p.self, family) &&
			v.read(nodes) {
			mac = v.bySeed(family)
		}
		if text := v.word(mac); family == 6 {
			out.V6 = text
		} else {
			out.V4 = text
		}
	}
	return out
}

// read reports whether there are others, and all of them read VtepWords.
func (v vteps) read(nodes []model.Node) bool {
	return len(nodes) > 1 && !slices.ContainsFunc(nodes, func(n model.Node) bool {
		return n.Name != v.p.self.Name && n.Vtep == (model.VtepWords{})
	})
}

// of is the address of a node's end of the tunnels: what the node publishes (whoever wrote it), else one that comes
// from its name, so that nobody has to tell it.
func (v vteps) of(n model.Node, family int) (mac state.MAC, problem *Problem) {
	text := vtepText(n, family)
	if text == "" {
		return vtepByName(n, family), nil
	}
	wrong := func(format string, args ...any) (state.MAC, *Problem) {
		return state.MAC{}, &Problem{
			[]string{n.Name},
			fmt.Sprintf("node %s publishes for vxlan %s: ", n.Name, text) + fmt.Sprintf(format, args...),
			"have that node publish it anew: {\"VNI\":1,\"VtepMAC\":\"12:34:56:78:9a:bc\"}",
		}
	}
	data, usual := v.usual(text)
	if !usual && json.Unmarshal([]byte(text), &data) != nil {
		return wrong("this is no such object")
	}
	if err := mac.UnmarshalText([]byte(data.VtepMAC)); err != nil || mac.IsZero() || mac[0]&1 != 0 {
		return wrong("VtepMAC %q is no address of one device", data.VtepMAC)
	}
	if own := v.p.cfg.Vxlan.vni(); data.VNI != 0 && data.VNI != own && n.Name != v.p.self.Name {
		_, problem := wrong("VNI %d is not this node's %d", data.VNI, own)
		problem.Hint = "give all nodes the same VNI"
		return mac, problem
	}
	return mac, nil
}

// usual takes apart what nearly all nodes publish, exactly as flannel and weft write it: JSON's own reader takes a
// microsecond for each of thousands.
func (v vteps) usual(text string) (d vxlanData, ok bool) {
	rest, ok := strings.CutPrefix(text, `{"VNI":`+strconv.FormatUint(uint64(v.p.cfg.Vxlan.vni()), 10)+`,"VtepMAC":"`)
	if !ok || len(rest) != len("12:34:56:78:9a:bc")+2 || !strings.HasSuffix(rest, `"}`) {
		return d, false
	}
	d.VNI, d.VtepMAC = v.p.cfg.Vxlan.vni(), rest[:len(rest)-2]
	return d, true
}

// self is self's own end. What self published before stays, whoever wrote it, so that peers need not learn
// anything.
func (v vteps) self(family int) (state.MAC, []Problem) {
	if v.p.cfg.VtepSeed != "" && v.inData() && vtepData(v.p.self, family) == "" {
		return v.bySeed(family), nil
	}
	mac, problem := v.of(v.p.self, family)
	if problem == nil {
		return mac, nil
	}
	return vtepByName(v.p.self, family), []Problem{*problem}
}

// word says a VtepMAC to others.
func (v vteps) word(mac state.MAC) string {
	b, err := json.Marshal(vxlanData{VNI: v.p.cfg.Vxlan.vni(), VtepMAC: mac.String()})
	if err != nil {
		return ""
	}
	return string(b)
}

// to is the address of a peer's end of the tunnel to it.
func (v vteps) to(peer model.Node, family int) (state.MAC, *Problem) {
	mac, problem := v.of(peer, family)
	if problem != nil {
		return mac, problem
	}
	own, known := v.p.vteps[family]
	if !known {
		own, _ = v.self(family)
		v.p.vteps[family] = own
	}
	if mac == own {
		return mac, &Problem{
			[]string{v.p.self.Name, peer.Name},
			fmt.Sprintf("nodes %s and %s both have the VtepMAC %s: the kernel drops what one sends to the other", v.p.self.Name,
				peer.Name, mac),
			"delete " + v.p.vxlanLink(family) + " and what one of them publishes, and restart it",
		}
	}
	return mac, nil
}
