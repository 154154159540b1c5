// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"reflect"
	"testing"
)

// A planner returns an interface in Capabilities if and only if it has its methods: a method without its capability
// would never be called.
func TestCapabilities(t *testing.T) {
	methods := map[string][]string{ // by capability
		"MakesInterface": nil,
		"Readiness":      {"ReadyQueries", "Ready"},
		"Check":          {"ExpectQueries", "Expect"},
		"Trace":          {"Trace", "Traces"},
		"Gates":          {"Gates"},
		"AddressRequest": {"AddressRequest"},
		"Unmanaged":      {"Unmanaged"},
		"DSCP":           {"DSCP"},
	}
	all := Builtin()
	for typ, p := range InAgent() {
		all["agent's "+typ] = p
	}
	values := map[string]int{}
	for typ, p := range all {
		v := reflect.ValueOf(p.Capabilities())
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if !v.Field(i).IsZero() {
				values[name]++
			}
			names, known := methods[name]
			if !known {
				t.Fatalf("capability %s: this test does not know its methods", name)
			}
			for _, m := range names {
				if _, has := reflect.TypeOf(p).MethodByName(m); has == v.Field(i).IsZero() {
					t.Errorf("%s: has method %s: %t, says %s: %t", typ, m, has, name, !v.Field(i).IsZero())
				}
			}
		}
	}
	for name := range methods {
		if values[name] == 0 {
			t.Errorf("no planner has capability %s", name)
		}
	}
}

// MakesInterface is set for the plugins that create the container's interface: a list without such a plugin is chained
// to another.
func TestMakesInterface(t *testing.T) {
	makes := map[string]bool{
		"ptp": true, "bridge": true, "macvlan": true, "ipvlan": true, "vlan": true, "dummy": true, "tap": true,
		CalicoType: true, MacvtapType: true, OwnMacvtapType: true,
	}
	for typ, p := range InAgent() {
		if got := p.Capabilities().MakesInterface; got != makes[typ] {
			t.Errorf("%s makes the interface: %t", typ, got)
		}
	}
}
