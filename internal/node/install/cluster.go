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
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Own is weft's own network as a node's cluster network.
type Own struct {
	Name string
	Node string
	// CIDRs are the node's podCIDRs.
	CIDRs []netip.Prefix
	// Pools are the address families (4, 6) in which pods get addresses from the cluster's pools. If there are any, CIDRs
	// is not used.
	Pools []int
	// Bridge connects the pods by a bridge; without it each has a veth and a route to its address.
	Bridge bool
	// Unguarded disables the source guard of pods on the bridge.
	Unguarded bool
	// DADTimeout is how long addresses of pods on the bridge are probed for duplicates.
	DADTimeout time.Duration
	MTU        int // bytes; 0 is the kernel's
	// Permit lists Calico's annotations behind a feature gate that pods may use.
	Permit []string
}

// clusterName is the configuration file of weft's own network.
const clusterName = "00-weft.conflist"

// Cluster writes the configuration of weft's own network to c.ConfDir, and removes the forms of other networks that
// weft has derived. Other vendors' files stay; the error is ErrNotFirst if the runtime uses one instead of weft's, which
// is written nevertheless.
func Cluster(ctx context.Context, c Config, own Own) ([]Change, error) {
	p, err := open(ctx, c.ConfDir, confHint)
	if err != nil {
		return nil, err
	}
	defer p.close()
	conflist, err := own.conflist(c.Socket)
	if err != nil {
		return nil, err
	}
	change := Change{p.path(clusterName), Unchanged, ""}
	have, err := os.ReadFile(change.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(err)
	}
	if _, mine := derivedFrom(have); err == nil && !mine {
		return nil, model.Errorf(model.CodeInvalidConf, "give that file another name",
			"configuration %s: not weft's, and nothing was changed", change.Path)
	}
	if conflist, err = withChained(conflist, have); err != nil {
		return nil, err
	}
	if !bytes.Equal(have, conflist) {
		if err := p.write(clusterName, bytes.NewReader(conflist), 0o644); err != nil {
			return nil, err
		}
		change.Action = Installed
	}
	withdrawn, err := p.withdraw(clusterName)
	return append([]Change{change}, withdrawn...), errors.Join(err, p.first())
}

// bridgeName is the name of the bridge.
const bridgeName = "weft0"

// link returns the plugin that connects pods to the node.
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
		if o.DADTimeout != 0 {
			link["dadTimeout"] = o.DADTimeout.Milliseconds()
		}
		if o.MTU != 0 {
			link["mtu"] = o.MTU
		}
		return link
	}
	ipam := object{"type": "host-local", "ranges": ranges}
	if len(o.Pools) > 0 {
		// strings, as in Calico's configuration
		assign := func(family int) string { return strconv.FormatBool(slices.Contains(o.Pools, family)) }
		ipam = object{"type": "calico-ipam", "assign_ipv4": assign(4), "assign_ipv6": assign(6)}
	}
	// The MTU is set, so that no file that Calico has left on the node takes effect.
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

// Plugin returns that plugin as its planner and its allocator get it.
func (o Own) Plugin() (json.RawMessage, error) { return json.Marshal(o.link()) }

// conflist returns the agent's conflist of the network: links for the pods, addresses of the node's podCIDRs or of
// pools, host ports, and bandwidth limits for the pods that request them.
func (o Own) conflist(socket string) ([]byte, error) {
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
