// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// Extension is the back end whose ways are made by somebody's programs. Its keys are those of flannel's net-conf.json;
// each is a program and its arguments, parted by spaces, without a shell.
type Extension struct {
	// PreStartupCommand runs first; what it prints is told to the other nodes.
	PreStartupCommand string
	// PostStartupCommand runs when this node's prefix is known.
	PostStartupCommand string
	// SubnetAddCommand runs for each other node, SubnetRemoveCommand when it has left.
	SubnetAddCommand    string
	SubnetRemoveCommand string
	// Network and NetworkV6 are the prefixes of all nodes' pods, which the commands are told.
	Network, NetworkV6 netip.Prefix
}

// The options of an extension's tunnel; a command is there when there is one.
const (
	OptionPostStartup  = "PostStartupCommand"
	OptionSubnetAdd    = "SubnetAddCommand"
	OptionSubnetRemove = "SubnetRemoveCommand"
	OptionNetwork      = "NETWORK"
	OptionSubnet       = "SUBNET"
	OptionSubnetV6     = "IPV6SUBNET"
	OptionPublic       = "PUBLIC_IP"
	OptionPublicV6     = "PUBLIC_IPV6"
	// OptionData is what a peer's first command printed.
	OptionData = "data"
)

// extensionLink is no link; it tells the tunnel from others.
const extensionLink = "extension"

func extensionRow() Backend {
	return Backend{Name: "extension", Node: extensionNode, Peer: extensionPeer, Publish: extensionPublish}
}

// extensionPublish is the output of the first command, a string in JSON, as flannel writes it.
func extensionPublish(p *Planner, family int) string {
	if family != 4 && p.has(4) || p.cfg.Extension.PreStartupCommand == "" {
		return ""
	}
	b, err := json.Marshal(p.Learned("extension"))
	if err != nil {
		return ""
	}
	return string(b)
}

func (p *Planner) has(family int) bool { _, ok := p.underlay[family]; return ok }

func extensionNode(p *Planner) Part {
	part, e := forwarding(p), p.cfg.Extension
	options := map[string]string{}
	for name, value := range map[string]string{
		OptionPostStartup: e.PostStartupCommand, OptionSubnetAdd: e.SubnetAddCommand,
		OptionSubnetRemove: e.SubnetRemoveCommand,
	} {
		if value != "" {
			options[name] = value
		}
	}
	if e.Network.IsValid() {
		options[OptionNetwork] = e.Network.String()
	}
	for family, names := range map[int][2]string{4: {OptionSubnet, OptionPublic}, 6: {OptionSubnetV6, OptionPublicV6}} {
		if cidr, ok := p.PodCIDR(family); ok {
			options[names[0]] = cidr.String()
		}
		if u, ok := p.underlay[family]; ok {
			options[names[1]] = u.Address.String()
		}
	}
	part.Tunnels = []Tunnel{{Backend: "extension", Link: extensionLink, Options: options}}
	return part
}

// extensionPeer names a peer's prefix for the commands. A peer that publishes data which are no string is not ours.
func extensionPeer(p *Planner, peer model.Node, cidr netip.Prefix) (Part, *Problem) {
	far, _, problem := p.Ends(peer, cidr)
	if problem != nil {
		return Part{}, problem
	}
	out := TunnelPeer{Node: peer.Name, CIDR: cidr, Endpoint: netip.AddrPortFrom(far, 0)}
	for _, family := range families() {
		text := Data(peer, "extension", family)
		if text == "" || text == "null" {
			continue
		}
		var data string
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			return Part{}, &Problem{
				[]string{peer.Name},
				fmt.Sprintf("node %s publishes for extension %s: this is no string", peer.Name, text),
				"have that node publish it anew: what its PreStartupCommand printed, as a string in JSON",
			}
		}
		out.Options = map[string]string{OptionData: data}
		break
	}
	return Part{Tunnels: []Tunnel{{Backend: "extension", Link: extensionLink, Peers: []TunnelPeer{out}}}}, nil
}
