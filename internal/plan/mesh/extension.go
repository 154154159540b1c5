// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// Extension is the configuration of the backend that runs the administrator's commands. Its keys are those of flannel's
// net-conf.json; each is a program and its arguments, separated by spaces, without a shell.
type Extension struct {
	// PreStartupCommand runs first; its output is published to the other nodes.
	PreStartupCommand string
	// PostStartupCommand runs when this node's prefix is known.
	PostStartupCommand string
	// SubnetAddCommand runs for each other node, SubnetRemoveCommand when it has left.
	SubnetAddCommand    string
	SubnetRemoveCommand string
	// Network and NetworkV6 are the prefixes of all nodes' pods, for the commands' environment.
	Network, NetworkV6 netip.Prefix
}

// The options of an extension's tunnel; a command is absent if it is not configured.
const (
	OptionPostStartup  = "PostStartupCommand"
	OptionSubnetAdd    = "SubnetAddCommand"
	OptionSubnetRemove = "SubnetRemoveCommand"
	OptionNetwork      = "NETWORK"
	OptionSubnet       = "SUBNET"
	OptionSubnetV6     = "IPV6SUBNET"
	OptionPublic       = "PUBLIC_IP"
	OptionPublicV6     = "PUBLIC_IPV6"
	// OptionData is the output of a peer's PreStartupCommand.
	OptionData = "data"
)

// extensionLink is not a link; it identifies the tunnel.
const extensionLink = "extension"

func extensionRow() Backend {
	return Backend{Name: "extension", Node: extensionNode, Peer: extensionPeer, Publish: extensionPublish}
}

// extensionPublish returns the output of PreStartupCommand as a JSON string, as flannel writes it.
func extensionPublish(p *Planner, family int) string {
	if family != 4 && p.hasUnderlay(4) || p.cfg.Extension.PreStartupCommand == "" {
		return ""
	}
	b, err := json.Marshal(p.Learned("extension"))
	if err != nil {
		return ""
	}
	return string(b)
}

func (p *Planner) hasUnderlay(family int) bool { _, ok := p.underlay[family]; return ok }

func extensionNode(p *Planner) BackendState {
	part, e := enableForwarding(p), p.cfg.Extension
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

// extensionPeer plans a peer's prefix for the commands. Data that is not a JSON string is a problem.
func extensionPeer(p *Planner, peer model.Node, cidr netip.Prefix) (BackendState, *Problem) {
	far, _, problem := p.Endpoints(peer, cidr)
	if problem != nil {
		return BackendState{}, problem
	}
	out := TunnelPeer{Node: peer.Name, CIDR: cidr, Endpoint: netip.AddrPortFrom(far, 0)}
	for _, family := range families() {
		text := Data(peer, "extension", family)
		if text == "" || text == "null" {
			continue
		}
		var data string
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			return BackendState{}, &Problem{
				[]string{peer.Name},
				fmt.Sprintf("node %s publishes for extension %s: not a string", peer.Name, text),
				"have that node publish it again: the output of its PreStartupCommand, as a JSON string",
			}
		}
		out.Options = map[string]string{OptionData: data}
		break
	}
	return BackendState{Tunnels: []Tunnel{{Backend: "extension", Link: extensionLink, Peers: []TunnelPeer{out}}}}, nil
}
