// SPDX-License-Identifier: Apache-2.0

// Package cniplan is weft cni plan: what an ADD of a network configuration would create, computed by the planners that
// the agent has, for a node and a pod that only flags describe.
package cniplan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/netconf"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// Plan is what one network would be.
type Plan struct {
	Network   string `json:"network"`
	Interface string `json:"interface"`
	// Fragment is what would exist, Restore what DEL would put back.
	Fragment state.Fragment `json:"fragment"`
	Restore  state.Fragment `json:"restore"`
	Result   model.Result   `json:"result"`
	Warnings []string       `json:"warnings"`
}

// options are the command's flags.
type options struct {
	ifName, capabilities string
	addresses, links     []string
}

// NewCmd returns the command.
func NewCmd(env ui.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show what an ADD of a network configuration would create",
		Long: `Shows the links, addresses, routes, rules and tables that ADD of the CNI configuration in FILE (- is standard input), or
of each NetworkAttachmentDefinition of a manifest, would create on the node and in the pod, and the result. Nothing is
created or allocated, and it needs no root, no agent and no pod.

The node of the plan has the link eth0 with the default route, and the links that the configuration names as master or
device; --link adds others. Sysctls are 0 there, and files, as that of flannel, are those of this host. host-local's
address is the first of its range; other allocators but static choose on the node, so that --address is needed.

Keys of -o json: a list of {network, interface, fragment, restore, result, warnings}. A fragment's host and pod hold
links, addrs, routes, rules, neighs, sysctls, tables and so on.`,
		Example: "  weft cni plan examples/multi-network/network.yaml\n" +
			"  weft cni plan /etc/cni/net.d/00-weft.conflist --address 10.244.1.5/24,gateway=10.244.1.1 -o json",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVarP(&o.ifName, "ifname", "i", "eth0", "`NAME` of the interface in the pod")
	f.StringArrayVar(&o.addresses, "address", nil,
		"`ADDRESS/LENGTH[,gateway=ADDRESS]` that IPAM allocates; may be repeated")
	f.StringArrayVar(&o.links, "link", nil,
		"`LINK[,KEY=VALUE…]` of the node, with the keys mtu, mac, kind and address; may be repeated")
	f.StringVar(&o.capabilities, "capability-args", "", "capability arguments of the runtime, a `JSON` object")
	output := printer.Flag(f, printer.Text, printer.JSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plans, err := o.plans(cmd.Context(), env, args[0])
		if err != nil {
			return err
		}
		if output.Document() {
			return output.Print(env.Stdout, plans)
		}
		for _, p := range plans {
			if err := p.print(env.Stdout); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// plans plans each network of a file.
func (o options) plans(ctx context.Context, env ui.Env, file string) ([]Plan, error) {
	given, err := o.given()
	if err != nil {
		return nil, err
	}
	var caps map[string]any
	if o.capabilities != "" {
		if err := json.Unmarshal([]byte(o.capabilities), &caps); err != nil {
			return nil, ui.Misusef(`write for example {"portMappings":[…]}`,
				"--capability-args %.80q is not a JSON object: %w", o.capabilities, err)
		}
	}
	b, err := ui.ReadConf(env, file)
	if err != nil {
		return nil, err
	}
	confs, err := netconf.In(file, b)
	if err != nil {
		return nil, err
	}
	out := []Plan{}
	for _, c := range confs {
		networks, err := networksOf(c)
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.Source, err)
		}
		for i, n := range networks {
			p := planning{ctx: ctx, given: given, links: o.links, ifName: o.ifName}
			if i > 0 { // as the agent calls the pod's further networks
				p.ifName = fmt.Sprintf("net%d", i)
			}
			plan, err := p.network(n, caps)
			if err != nil {
				return nil, fmt.Errorf("configuration %s: %w", c.Source, err)
			}
			out = append(out, plan)
		}
	}
	return out, nil
}

// given returns the addresses of the flags.
func (o options) given() (*model.Result, error) {
	if len(o.addresses) == 0 {
		return nil, nil
	}
	bad := func(flag, why string) error {
		return ui.Misusef("for example --address 10.244.1.5/24,gateway=10.244.1.1", "--address %q: %s", flag, why)
	}
	r := &model.Result{}
	for _, flag := range o.addresses {
		text, gateway, has := strings.Cut(flag, ",gateway=")
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, bad(flag, fmt.Sprintf("%q is not an address with a prefix length", text))
		}
		ip := model.IP{Address: p}
		if has {
			if ip.Gateway, err = netip.ParseAddr(gateway); err != nil || ip.Gateway.Is4() != p.Addr().Is4() {
				return nil, bad(flag, fmt.Sprintf("gateway %q is not an IP address of the same family", gateway))
			}
			all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if p.Addr().Is6() {
				all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			r.Routes = append(r.Routes, model.Route{Dst: all, GW: ip.Gateway})
		}
		r.IPs = append(r.IPs, ip)
	}
	return r, nil
}

// networksOf returns the network of a configuration, or those of the agent's plugin.
func networksOf(c netconf.Text) ([]model.Network, error) {
	if len(c.Conf) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "name that file", "spec.config is empty: the configuration is the "+
			"file of the network %s on each node", c.Object.Name)
	}
	version := ""
	if c.Object.Name != "" {
		version = "0.3.1" // the version of a NetworkAttachmentDefinition without cniVersion
	}
	n, err := cni.ParseWith(c.Conf, c.Object.Name, version)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(n.Plugins, func(p model.PluginConf) bool { return cni.IsShim(p.Type) })
	if i < 0 {
		return []model.Network{n}, nil
	}
	all, err := cni.Delegates(n, n.Plugins[i])
	if err != nil {
		return nil, err
	}
	var out []model.Network
	for k, d := range all {
		if d.Err != nil {
			return nil, fmt.Errorf("plugins[%d].delegates[%d]: %w", i, k, d.Err)
		}
		out = append(out, d.Network)
	}
	if len(out) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "plan that object: kubectl get net-attach-def NAME -o yaml | weft cni plan -",
			"plugins[%d]: the network is that of the object in clusterNetwork", i)
	}
	return out, nil
}

// planning is the way to one network's plan.
type planning struct {
	ctx    context.Context
	given  *model.Result
	links  []string
	ifName string
}

func (g planning) network(n model.Network, caps map[string]any) (Plan, error) {
	n, err := cni.Derive(n, caps, nil)
	if err != nil {
		return Plan{}, err
	}
	node, planners := newNode(), plugin.InAgent()
	for _, p := range n.Plugins {
		node.addNamed(p)
	}
	for _, l := range g.links {
		if err := node.addFlag(l); err != nil {
			return Plan{}, err
		}
	}
	req := model.Request{
		Network: n.Name, CNIVersion: n.CNIVersion, ContainerID: "plan", Netns: "/run/netns/plan", IfName: g.ifName,
	}
	owner := plugin.Owner(req.Key())
	out := Plan{
		Network: n.Name, Interface: g.ifName, Fragment: state.Fragment{Owner: owner}, Restore: state.Fragment{Owner: owner},
		Warnings: []string{},
	}
	chain := plugin.Chain{}
	for i, conf := range n.Plugins {
		p := planners[conf.Type]
		if p == nil {
			return Plan{}, model.Errorf(model.CodeInvalidConf, "the types that can be planned are in docs/reference/plugins.md",
				"plugins[%d].type %q is another vendor's plugin: what it creates is not known", i, conf.Type)
		}
		step, err := g.step(plugin.Input{Conf: conf, Request: req, Chain: chain}, p, node)
		if err != nil {
			return Plan{}, fmt.Errorf("network %s: plugins[%d]: %w", n.Name, i, err)
		}
		step.Result = plugin.MergeResults(chain.Prev, step.Result)
		if step.Pending != nil {
			out.Fragment = *step.Pending
		}
		out.Fragment.Merge(step.Fragment)
		out.Restore.Merge(step.Restore)
		for _, w := range step.Warnings {
			out.Warnings = append(out.Warnings, fmt.Sprintf("plugins[%d]: %s", i, w.Msg))
		}
		chain = plugin.Chain{Prev: &step.Result, Fragment: out.Fragment, Pending: out.Fragment}
	}
	if chain.Prev != nil {
		out.Result = *chain.Prev
	}
	return out, nil
}

// step plans one plugin.
func (g planning) step(in plugin.Input, p plugin.Planner, n node) (plugin.Step, error) {
	var none plugin.Step
	var err error
	if in.Decoded, err = plugin.Decode(p, in.Conf); err != nil {
		return none, err
	}
	section, err := p.IPAM(in.Conf)
	if err != nil {
		return none, err
	}
	if section != nil {
		if in.IPAM, err = g.allocate(in, section); err != nil {
			return none, err
		}
	}
	queries, err := p.Observe(in)
	if err != nil {
		return none, err
	}
	in.Answers = n.answer(queries)
	return p.Plan(in)
}

// allocate returns the addresses of a plugin's ipam section.
func (g planning) allocate(in plugin.Input, section []byte) (*model.Result, error) {
	if g.given != nil {
		r := *g.given
		return &r, nil
	}
	var c struct {
		Type string `json:"type"`
	}
	if err := cni.Decode("ipam", section, &c); err != nil {
		return nil, err
	}
	var alloc ipam.Allocator
	raw := in.Conf.Raw
	switch c.Type {
	case static.New().Type():
		alloc = static.New()
	case hostlocal.New(hostlocal.Config{}).Type():
		dir, err := os.MkdirTemp("", "weft-cni-plan-") // of a network that has no addresses yet
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		alloc = hostlocal.New(hostlocal.Config{DataDir: dir, CallerKnows: true})
		if raw, err = without(raw, "dataDir"); err != nil {
			return nil, err
		}
	default:
		return nil, model.Errorf(model.CodeInvalidConf, "add an example: --address 10.244.1.5/24,gateway=10.244.1.1",
			"ipam.type %q chooses addresses on the node", c.Type)
	}
	if err := alloc.Validate(raw); err != nil {
		return nil, err
	}
	r, err := alloc.Add(g.ctx, ipam.Request{
		Conf: raw, Network: in.Request.Network, ContainerID: in.Request.ContainerID, IfName: in.Request.IfName,
	})
	return &r, err
}

// without returns a plugin's configuration without a key of its ipam section.
func without(raw json.RawMessage, key string) (json.RawMessage, error) {
	var conf, section map[string]json.RawMessage
	err := errors.Join(json.Unmarshal(raw, &conf), json.Unmarshal(conf["ipam"], &section))
	if err != nil {
		return nil, err
	}
	delete(section, key)
	if conf["ipam"], err = json.Marshal(section); err != nil {
		return nil, err
	}
	return json.Marshal(conf)
}

// print prints the plan for users.
func (p Plan) print(w io.Writer) error {
	fmt.Fprintf(w, "network %s: interface %s\n", p.Network, p.Interface)
	for _, part := range []struct {
		title string
		space state.Space
	}{
		{"pod", p.Fragment.Pod}, {"node", p.Fragment.Host},
		{"DEL puts back in the pod", p.Restore.Pod}, {"DEL puts back on the node", p.Restore.Host},
	} {
		if part.space.Empty() {
			continue
		}
		lines, err := part.space.Lines(lang.Text)
		if err != nil {
			return fmt.Errorf("network %s: %w", p.Network, err)
		}
		fmt.Fprintf(w, "  %s:\n", part.title)
		for _, l := range lines {
			fmt.Fprintf(w, "    %s\n", l)
		}
	}
	for _, e := range p.Fragment.Effects {
		fmt.Fprintf(w, "  %s\n", e)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(w, "  warning: %s\n", warning)
	}
	return nil
}
