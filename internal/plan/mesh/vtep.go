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

// The source of a node's VtepMAC is the first of these that exists:
//
//	backend data      The node's own backend is vxlan, and publishes one: random from the start.
//	VTEPData          The backend is another one, or the node publishes nothing else. Nodes of an earlier version do not
//	                  read VTEPData, and a copied directory may not have it. So a node first publishes its current MAC,
//	                  and chooses a random one when all peers publish theirs: then all of them read VTEPData.
//	the node's name   Nothing is published.
//
// A device gets a MAC only after it was published, except in the first case, which peers of every version read.

// vteps computes the MAC addresses of the nodes' VXLAN tunnel endpoints.
type vteps struct{ p *Planner }

// vtepData returns what a node publishes as data of backend vxlan.
func vtepData(n model.Node, family int) string {
	if text := Data(n, "vxlan", family); text != "null" {
		return text
	}
	return ""
}

// vtepAnnotation returns what a node publishes separately.
func vtepAnnotation(n model.Node, family int) string {
	if family == 6 {
		return n.VTEP.V6
	}
	return n.VTEP.V4
}

func vtepText(n model.Node, family int) string {
	if text := vtepData(n, family); text != "" {
		return text
	}
	return vtepAnnotation(n, family)
}

func vtepFromName(n model.Node, family int) state.MAC {
	return state.SeedMAC("vtep/" + strconv.Itoa(family) + "/" + n.Name)
}

// randomMAC returns the MAC that is derived from VTEPSeed: it differs between nodes and between instances of a node.
func (v vteps) randomMAC(family int) state.MAC {
	return state.SeedMAC("vtep/" + strconv.Itoa(family) + "/" + v.p.self.Name + "/" + v.p.cfg.VTEPSeed)
}

// inData reports whether self's VtepMAC is in its own backend's data.
func (v vteps) inData() bool { return v.p.cfg.Backend == "vxlan" && !v.p.cfg.PublishVTEPOnly }

// publishedVTEP returns the VTEP MACs that self publishes separately: nothing if its backend's data is enough.
func (v vteps) publishedVTEP(nodes []model.Node) (out model.VTEPData) {
	if v.p.cfg.VTEPSeed == "" || v.inData() && !slices.Contains(v.p.pools.kinds(), "vxlan") {
		return out
	}
	for _, family := range families() {
		if _, ok := v.p.underlay[family]; !ok {
			continue
		}
		mac, problems := v.self(family)
		if len(problems) == 0 && !v.inData() && vtepData(v.p.self, family) == "" && mac == vtepFromName(v.p.self, family) &&
			v.peersPublishVTEP(nodes) {
			mac = v.randomMAC(family)
		}
		if text := v.encode(mac); family == 6 {
			out.V6 = text
		} else {
			out.V4 = text
		}
	}
	return out
}

// peersPublishVTEP reports whether there are peers, and all of them publish VTEPData, so that they also read it.
func (v vteps) peersPublishVTEP(nodes []model.Node) bool {
	return len(nodes) > 1 && !slices.ContainsFunc(nodes, func(n model.Node) bool {
		return n.Name != v.p.self.Name && n.VTEP == (model.VTEPData{})
	})
}

// of returns a node's VTEP MAC: the one that the node publishes (weft or flannel), else one that is derived from its
// name, so that it need not be published.
func (v vteps) of(n model.Node, family int) (mac state.MAC, problem *Problem) {
	text := vtepText(n, family)
	if text == "" {
		return vtepFromName(n, family), nil
	}
	wrong := func(format string, args ...any) (state.MAC, *Problem) {
		return state.MAC{}, &Problem{
			[]string{n.Name},
			fmt.Sprintf("node %s publishes for vxlan %s: ", n.Name, text) + fmt.Sprintf(format, args...),
			"have that node publish it again: {\"VNI\":1,\"VtepMAC\":\"12:34:56:78:9a:bc\"}",
		}
	}
	data, usual := v.decodeFast(text)
	if !usual && json.Unmarshal([]byte(text), &data) != nil {
		return wrong("not such an object")
	}
	if err := mac.UnmarshalText([]byte(data.VTEPMAC)); err != nil || mac.IsZero() || mac[0]&1 != 0 {
		return wrong("VtepMAC %q is not a unicast MAC address", data.VTEPMAC)
	}
	if own := v.p.cfg.VXLAN.vni(); data.VNI != 0 && data.VNI != own && n.Name != v.p.self.Name {
		_, problem := wrong("VNI %d is not this node's %d", data.VNI, own)
		problem.Hint = "give all nodes the same VNI"
		return mac, problem
	}
	return mac, nil
}

// decodeFast parses the JSON exactly as flannel and weft write it: encoding/json takes a microsecond for each of
// thousands of nodes.
func (v vteps) decodeFast(text string) (d vxlanData, ok bool) {
	rest, ok := strings.CutPrefix(text, `{"VNI":`+strconv.FormatUint(uint64(v.p.cfg.VXLAN.vni()), 10)+`,"VtepMAC":"`)
	if !ok || len(rest) != len("12:34:56:78:9a:bc")+2 || !strings.HasSuffix(rest, `"}`) {
		return d, false
	}
	d.VNI, d.VTEPMAC = v.p.cfg.VXLAN.vni(), rest[:len(rest)-2]
	return d, true
}

// self returns self's own VTEP MAC. A published one stays, even if flannel wrote it, so that peers need no update.
func (v vteps) self(family int) (state.MAC, []Problem) {
	if v.p.cfg.VTEPSeed != "" && v.inData() && vtepData(v.p.self, family) == "" {
		return v.randomMAC(family), nil
	}
	mac, problem := v.of(v.p.self, family)
	if problem == nil {
		return mac, nil
	}
	return vtepFromName(v.p.self, family), []Problem{*problem}
}

// encode returns the data to publish for a VtepMAC.
func (v vteps) encode(mac state.MAC) string {
	b, err := json.Marshal(vxlanData{VNI: v.p.cfg.VXLAN.vni(), VTEPMAC: mac.String()})
	if err != nil {
		return ""
	}
	return string(b)
}

// to returns the VTEP MAC of a peer, or a problem if it is also self's.
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
			"on one of them, delete " + v.p.vxlanLink(family) + " and its annotation, and restart the agent",
		}
	}
	return mac, nil
}
