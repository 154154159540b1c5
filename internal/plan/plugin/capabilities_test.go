// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"reflect"
	"testing"
)

// What a planner has a method for it says that it can, and only that: a method that no capability names would never be
// called.
func TestCapabilities(t *testing.T) {
	methods := map[string][]string{ // of each capability
		"MakesInterface": nil,
		"Readiness":      {"ReadyQueries", "Ready"},
		"Check":          {"ExpectQueries", "Expect"},
		"Trace":          {"Trace", "Traces"},
		"Gates":          {"Gates"},
		"Wishes":         {"Wishes"},
		"Brought":        {"Brought"},
		"DSCP":           {"DSCP"},
	}
	all := Builtin()
	for typ, p := range InAgent() {
		all["agent's "+typ] = p
	}
	said := map[string]int{}
	for typ, p := range all {
		v := reflect.ValueOf(p.Capabilities())
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if !v.Field(i).IsZero() {
				said[name]++
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
		if said[name] == 0 {
			t.Errorf("nobody has capability %s", name)
		}
	}
}

// What a plugin makes is the container's interface: a list without such a plugin is a part of another.
func TestWhoMakesInterfaces(t *testing.T) {
	makes := map[string]bool{
		"ptp": true, "bridge": true, "macvlan": true, "ipvlan": true, "vlan": true, "dummy": true, "tap": true,
		CalicoType: true,
	}
	for typ, p := range InAgent() {
		if got := p.Capabilities().MakesInterface; got != makes[typ] {
			t.Errorf("%s makes the interface: %t", typ, got)
		}
	}
}
