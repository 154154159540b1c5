// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// ShimType is the type of the plugin that forwards its calls to the agent.
const ShimType = "weft-cni"

// IsShim reports whether a plugin forwards its calls to the agent: under weft's own name, or in place of Multus.
func IsShim(typ string) bool { return typ == ShimType || typ == "multus" || typ == "multus-shim" }

// NestedShim returns the error for a list that the agent would forward to itself, and deadlock.
func NestedShim() error {
	return model.Errorf(model.CodeInvalidConf, "put its delegates here instead",
		"plugin %q is among its own delegates", ShimType)
}

// Report is the result of a static check of a configuration.
type Report struct {
	Network    string    `json:"network,omitempty"`
	CNIVersion string    `json:"cniVersion,omitempty"`
	Plugins    []string  `json:"plugins,omitempty"`
	Errors     []Problem `json:"errors"`
	Warnings   []Warning `json:"warnings"`

	named []named // the types in the configuration
}

// Problem is an error in a configuration, with which ADD fails.
type Problem struct {
	Where string     `json:"where,omitempty"`
	Code  model.Code `json:"code"`
	Msg   string     `json:"message"`
	Hint  string     `json:"hint,omitempty"`
}

// String returns the problem in one line.
func (p Problem) String() string {
	return Warning{Where: p.Where, Msg: p.Msg, Hint: p.Hint}.String()
}

// Examine validates a configuration with every planner and allocator that it names, instead of stopping at the first
// error.
func Examine(b []byte, planners map[string]plugin.Planner, ipams map[string]ipam.Allocator) Report {
	return ExamineWith(b, Environment{}, planners, ipams)
}

// ExamineWith is Examine for a configuration whose name and version may come from its environment.
func ExamineWith(b []byte, s Environment, planners map[string]plugin.Planner, ipams map[string]ipam.Allocator) Report {
	r := Report{Errors: []Problem{}, Warnings: []Warning{}}
	var n model.Network
	var err error
	if s.Name != "" || s.Version != "" {
		b, err = setDefaults(b, s.Name, s.Version)
	}
	if err == nil {
		n, err = ParseNetwork(b)
	}
	if err != nil {
		r.problem("", err)
		return r
	}
	r.Network, r.CNIVersion = n.Name, n.CNIVersion
	for _, p := range n.Plugins {
		r.Plugins = append(r.Plugins, p.Type)
	}
	r.validate("", n, planners, ipams)
	r.Warnings = append(r.Warnings, Lint(n, planners, ipams)...)
	return r
}

// OK reports whether the configuration is valid; strict counts warnings as errors.
func (r Report) OK(strict bool) bool { return len(r.Errors) == 0 && (!strict || len(r.Warnings) == 0) }

func (r *Report) problem(where string, err error) {
	p := Problem{Where: where, Code: model.CodeInternal, Msg: err.Error()}
	var f *model.Error
	if errors.As(err, &f) {
		p.Code, p.Msg, p.Hint = f.Code, f.Msg, f.Hint
	}
	r.Errors = append(r.Errors, p)
}

func (r *Report) validate(
	prefix string, n model.Network, planners map[string]plugin.Planner, ipams map[string]ipam.Allocator,
) {
	derived, err := Derive(n, nil, nil)
	if err != nil {
		r.problem(prefix, err)
		return
	}
	for i, p := range derived.Plugins {
		where := fmt.Sprintf("%splugins[%d] %s", prefix, i, p.Type)
		if IsShim(p.Type) {
			if prefix != "" {
				r.problem(where, NestedShim())
				continue
			}
			r.delegates(where, n, p, planners, ipams)
			continue
		}
		r.named = append(r.named, named{where, "type", p.Type, prefix != ""})
		if t := ipamType(p); t != "" {
			r.named = append(r.named, named{where, "ipam.type", t, prefix != ""})
		}
		planner, ok := planners[p.Type]
		if !ok {
			continue
		}
		if err := plugin.Validate(planner, p); err != nil {
			r.problem(where, err)
		}
		if a := ipams[ipamType(p)]; a != nil {
			if err := a.Validate(filled(p).Raw); err != nil {
				r.problem(where, err)
			}
		}
	}
}

// filled replaces the placeholder for the node's prefixes by examples.
func filled(p model.PluginConf) model.PluginConf {
	c := plugin.Calico{}
	if p.Type != plugin.CalicoType || !c.WantsPrefixes(p) {
		return p
	}
	example, err := c.WithPrefixes(p, []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), 24), netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd}), 64),
	})
	if err != nil {
		return p // its planner reports the error
	}
	return example
}

func (r *Report) delegates(
	where string, outer model.Network, p model.PluginConf, planners map[string]plugin.Planner,
	ipams map[string]ipam.Allocator,
) {
	all, err := Delegates(outer, p)
	if err != nil {
		r.problem(where, err)
	}
	for i, d := range all {
		at := fmt.Sprintf("%s: delegates[%d]", where, i)
		if d.Err != nil {
			r.problem(at, d.Err)
			continue
		}
		r.validate(at+": ", d.Network, planners, ipams)
	}
}

// Delegate is a network that the agent attaches for its plugin, or why it cannot be parsed.
type Delegate struct {
	Network model.Network
	Err     error
}

// Delegates returns the networks in the configuration of the agent's plugin, which is one of outer's. It may have none if
// it names a cluster network.
func Delegates(outer model.Network, p model.PluginConf) ([]Delegate, error) {
	var c struct {
		Socket         string            `json:"socket"`
		Delegates      []json.RawMessage `json:"delegates"`
		ClusterNetwork string            `json:"clusterNetwork"`
	}
	if err := Decode("plugin", p.Raw, &c); err != nil {
		return nil, err
	}
	if len(c.Delegates) == 0 && c.ClusterNetwork == "" {
		return nil, model.Errorf(model.CodeInvalidConf, "add the lists that the agent attaches", "delegates is empty")
	}
	out := make([]Delegate, 0, len(c.Delegates))
	for i, raw := range c.Delegates {
		n, err := parseDelegate(raw, outer, i)
		out = append(out, Delegate{n, err})
	}
	return out, nil
}

// parseDelegate parses a network that the agent attaches: the first one may leave out its name, all may leave out the
// version.
func parseDelegate(raw json.RawMessage, outer model.Network, i int) (model.Network, error) {
	name := ""
	if i == 0 {
		name = outer.Name
	}
	return ParseWith(raw, name, outer.CNIVersion)
}

// ParseWith parses a network configuration that may leave out its name and version.
func ParseWith(b []byte, name, version string) (model.Network, error) {
	b, err := setDefaults(b, name, version)
	if err != nil {
		return model.Network{}, err
	}
	return ParseNetwork(b)
}
