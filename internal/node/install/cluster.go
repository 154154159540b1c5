// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Own is weft's own network as a node's first.
type Own struct {
	Name string
	Node string
	// CIDRs are the prefixes of the node's pods.
	CIDRs []netip.Prefix
	// Pools are the families (4, 6) of which pods have addresses from pools of the whole cluster. Then CIDRs has no
	// meaning.
	Pools []int
	// Bridge joins the pods by a bridge; without it each has a link of its own, and a route to its address.
	Bridge bool
	// Unguarded pods on the bridge may send in the name of others.
	Unguarded bool
	MTU       int // bytes; 0 is the kernel's
	// Permit are Calico's annotations behind a gate that pods may use.
	Permit []string
}

// clusterName is the file of weft's own network.
const clusterName = "00-weft.conflist"

// Cluster puts the configuration of weft's own network into c.ConfDir, and takes away the forms of other networks that
// weft has derived. Other vendors' files stay; the detail names one that the runtime takes before weft's.
func Cluster(ctx context.Context, c Config, own Own) ([]Change, error) {
	p, err := open(ctx, c.ConfDir, confHint)
	if err != nil {
		return nil, err
	}
	defer p.close()
	form, err := own.form(c.Socket)
	if err != nil {
		return nil, err
	}
	change := Change{p.path(clusterName), Unchanged, ""}
	have, err := os.ReadFile(change.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, trouble(err)
	}
	if _, mine := derivedFrom(have); err == nil && !mine {
		return nil, model.Faultf(model.CodeInvalidConf, "give that file another name",
			"configuration %s: not weft's, nothing was changed", change.Path)
	}
	if !bytes.Equal(have, form) {
		if err := p.put(clusterName, bytes.NewReader(form), 0o644); err != nil {
			return nil, err
		}
		change.Action = Installed
	}
	withdrawn, err := p.withdraw(clusterName)
	if err == nil {
		var names []string
		if names, _, err = p.read(); err == nil && names[0] != clusterName {
			change.Detail = names[0] + " comes before it"
		}
	}
	return append([]Change{change}, withdrawn...), err
}

// bridgeName is the bridge's link.
const bridgeName = "weft0"

// link is the plugin that joins pods to the node.
func (o Own) link() map[string]any {
	type object = map[string]any
	const usual = 1500
	var ranges [][]object
	var routes []object
	for _, p := range o.CIDRs {
		ranges = append(ranges, []object{{"subnet": p.String()}})
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if p.Addr().Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		routes = append(routes, object{"dst": all.String()})
	}
	if o.Bridge {
		link := object{
			"type": "bridge", "bridge": bridgeName, "isGateway": true, "hairpinMode": true,
			"ipam": object{"type": "host-local", "ranges": ranges, "routes": routes},
		}
		if o.Unguarded {
			link["guard"] = false
		}
		if o.MTU != 0 {
			link["mtu"] = o.MTU
		}
		return link
	}
	ipam := object{"type": "host-local", "ranges": ranges}
	if len(o.Pools) > 0 {
		// texts, as Calico has it
		assign := func(family int) string { return strconv.FormatBool(slices.Contains(o.Pools, family)) }
		ipam = object{"type": "calico-ipam", "assign_ipv4": assign(4), "assign_ipv6": assign(6)}
	}
	// The MTU is said, lest a file count that Calico has left on the node.
	link := object{"type": "calico", "mtu": cmp.Or(o.MTU, usual), "policy": object{"type": "k8s"}, "ipam": ipam}
	gates := object{}
	for annotation, gate := range map[string]string{
		"ipAddrsNoIpam": "ip_addrs_no_ipam", "floatingIPs": "floating_ips", "allowedSourcePrefixes": "source_prefixes",
	} {
		if slices.Contains(o.Permit, annotation) {
			gates[gate] = true
		}
	}
	if len(gates) > 0 {
		link["feature_control"] = gates
	}
	return link
}

// Plugin is that part of the network as its planner and its allocator are given it.
func (o Own) Plugin() (json.RawMessage, error) { return json.Marshal(o.link()) }

// form is the agent's form of the network: links of their own for the pods, addresses of the node's prefixes or of
// pools, ports of the node and limits of bandwidth for the pods that ask for them.
func (o Own) form(socket string) ([]byte, error) {
	type object = map[string]any
	from := "the prefixes of node " + o.Node
	if len(o.Pools) > 0 {
		from = "the pools of the cluster"
	}
	caps := map[string]bool{annotations: true, "portMappings": true, "bandwidth": true}
	network, err := json.Marshal(object{
		"cniVersion": "1.0.0", "name": o.Name,
		"plugins": []object{
			o.link(),
			{"type": "portmap", "capabilities": object{"portMappings": true}},
			{"type": "bandwidth", "capabilities": object{"bandwidth": true}},
		},
	})
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(agentList{
		CNIVersion: "1.0.0", CNIVersions: since("1.0.0"), Name: o.Name, Inlined: true, Mark: &mark{from},
		Plugins: []agentPlugin{{cni.ShimType, socket, caps, []json.RawMessage{network}}},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}
