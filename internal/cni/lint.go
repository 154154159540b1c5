// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Warning is about a setting that is valid, but probably not as intended.
type Warning struct {
	// Where is the location: "" for the list, "plugins[0] bridge" for a plugin.
	Where string `json:"where,omitempty"`
	// Field is the path of the key, "ipam.ranges[][].subnett".
	Field string `json:"field"`
	Msg   string `json:"message"`
	Hint  string `json:"hint,omitempty"`
}

// String returns the warning in one line.
func (w Warning) String() string {
	s := w.Msg
	if w.Where != "" {
		s = w.Where + ": " + s
	}
	if w.Hint != "" {
		s += " (" + w.Hint + ")"
	}
	return s
}

// warner is a planner or allocator that finds contradicting settings.
type warner interface {
	Warnings(conf json.RawMessage) []model.Warning
}

// Lint finds unknown keys with the nearest known one, duplicate keys, keys that only the runtime may set, and settings
// without effect. Plugins without a planner in weft are not checked.
func Lint(n model.Network, planners map[string]plugin.Planner, ipams map[string]ipam.Allocator) []Warning {
	l := linter{planners: planners, ipams: ipams}
	l.list(n)
	return l.found
}

type linter struct {
	planners map[string]plugin.Planner
	ipams    map[string]ipam.Allocator
	prefix   string
	found    []Warning
}

func (l *linter) add(where, field, hint, format string, args ...any) {
	l.found = append(l.found, Warning{
		Where: strings.TrimSpace(l.prefix + where), Field: field, Msg: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (l *linter) list(n model.Network) {
	var o object
	isList := json.Unmarshal(n.Raw, &o) == nil && o["plugins"] != nil
	if isList {
		l.unknown("", listSchema(), n.Raw)
	}
	if l.prefix == "" { // delegates are part of the list itself
		for _, path := range duplicates(n.Raw) {
			l.add("", path, "remove one of them", "key %q is there twice, the last one counts", path)
		}
	}
	makers := 0
	for i, p := range n.Plugins {
		where := fmt.Sprintf("plugins[%d] %s", i, p.Type)
		l.plugin(where, n, p)
		if makesInterface(p) {
			if makers++; makers > 1 {
				l.add(where, "type", "give each its own list", "a second plugin that makes the container's interface")
			}
		}
	}
}

// makesInterface reports whether a plugin creates the container's interface. An ipvlan without ipam is a chained one.
func makesInterface(p model.PluginConf) bool {
	switch p.Type {
	case "bridge", "ptp", "macvlan", "vlan", "host-device", "dummy", "tap", plugin.FlannelType, plugin.CalicoType:
		return true
	case "ipvlan":
		return hasIPAM(p)
	}
	return false
}

func (l *linter) plugin(where string, n model.Network, p model.PluginConf) {
	l.reserved(where, p)
	if IsShim(p.Type) {
		l.unknown(where, shimSchema(), p.Raw)
		l.multus(where, p)
		l.delegates(where, n, p)
		return
	}
	planner, known := l.planners[p.Type]
	allocator, addresses := l.allocator(p)
	if known {
		l.unknown(where, complete(planner.Keys(), allocator), p.Raw)
		l.warnings(where, planner, p)
		if p.Type == plugin.FlannelType {
			l.delegate(where, p)
		}
		if !addresses && hasIPAM(p) && p.Type != plugin.FlannelType && plugin.Validate(planner, p) == nil {
			l.add(where, "ipam.type", `add "type", for example "host-local"`, "ipam has no type: it has no effect")
		}
	}
	if addresses && allocator == nil {
		l.add(where, "ipam.type", "", "ipam.type %q is none of weft's own, it will be executed as a program", ipamType(p))
	}
	if allocator != nil {
		l.warnings(where, allocator, p)
	}
}

// delegate checks the keys of the plugin that flannel delegates to.
func (l *linter) delegate(where string, p model.PluginConf) {
	var c struct {
		Delegate json.RawMessage `json:"delegate"`
	}
	d, err := plugin.Flannel{}.Delegate(p, plugin.FlannelNode{})
	planner := l.planners[d.Type]
	if err != nil || planner == nil || json.Unmarshal(p.Raw, &c) != nil {
		return // its planner reports it, or the keys are unknown
	}
	for _, u := range complete(planner.Keys(), nil).unknown(c.Delegate) {
		hint := ""
		if u[1] != "" {
			hint = "did you mean delegate." + u[1] + "?"
		}
		l.add(where, "delegate."+u[0], hint, "unknown key %q", "delegate."+u[0])
	}
}

// allocator returns the allocator of the plugin's ipam section; asked reports whether it names any.
func (l *linter) allocator(p model.PluginConf) (a ipam.Allocator, asked bool) {
	t := ipamType(p)
	return l.ipams[t], t != ""
}

func hasIPAM(p model.PluginConf) bool {
	var c struct {
		IPAM object `json:"ipam"`
	}
	return json.Unmarshal(p.Raw, &c) == nil && len(c.IPAM) > 0
}

func ipamType(p model.PluginConf) string {
	var c struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	_ = json.Unmarshal(p.Raw, &c) // the planner reports a wrong type
	return c.IPAM.Type
}

// complete replaces "ipam.*" by the allocator's keys.
func complete(keys []string, a ipam.Allocator) schema {
	var s schema
	for _, k := range keys {
		if k != "ipam.*" || a == nil {
			s = append(s, k)
			continue
		}
		for _, sub := range a.Keys() {
			s = append(s, "ipam."+sub)
		}
	}
	return s
}

func (l *linter) unknown(where string, s schema, raw json.RawMessage) {
	for _, u := range s.unknown(raw) {
		if strings.HasPrefix(u[0], "cni.dev/") {
			continue // reserved reports it
		}
		hint := ""
		if u[1] != "" {
			hint = "did you mean " + u[1] + "?"
		}
		l.add(where, u[0], hint, "unknown key %q", u[0])
	}
}

// reserved finds keys that only a runtime may set.
func (l *linter) reserved(where string, p model.PluginConf) {
	var o object
	if json.Unmarshal(p.Raw, &o) != nil {
		return
	}
	for _, key := range sortedKeys(o) {
		switch {
		case key == "runtimeConfig", key == "prevResult", key == "args":
			l.add(where, key, "declare a capability instead", "key %q is reserved for the runtime", key)
		case strings.HasPrefix(key, "cni.dev/"):
			l.add(where, key, "remove it", "key %q is reserved for the protocol", key)
		}
	}
}

func sortedKeys(o object) []string {
	m := make(map[string]any, len(o))
	for k := range o {
		m[k] = nil
	}
	return sorted(m)
}

func (l *linter) warnings(where string, of any, p model.PluginConf) {
	d, ok := of.(warner)
	if !ok {
		return
	}
	for _, warning := range d.Warnings(p.Raw) {
		l.add(where, warning.Field, warning.Hint, "%s", warning.Msg)
	}
}

func (l *linter) delegates(where string, outer model.Network, p model.PluginConf) {
	var c struct {
		Delegates []json.RawMessage `json:"delegates"`
	}
	if json.Unmarshal(p.Raw, &c) != nil {
		return
	}
	for i, raw := range c.Delegates {
		if n, err := parseDelegate(raw, outer, i); err == nil {
			inner := linter{
				planners: l.planners, ipams: l.ipams, prefix: fmt.Sprintf("%s%s: delegates[%d]: ", l.prefix, where, i),
			}
			inner.list(n)
			l.found = append(l.found, inner.found...)
		}
	}
}
