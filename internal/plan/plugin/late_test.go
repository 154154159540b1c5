// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// What is planned for the interface only is, unchanged, part of what is planned once the addresses are known, whatever
// they are; and it has no addresses except those that the planner derives itself.
func TestLinkOnlyIsPartOfPlan(t *testing.T) {
	results := map[string]*model.Result{
		"IPv4": v4(), "dual": dual(), "IPv6": {IPs: []model.IP{ip("fd00:1::5/64", "fd00:1::1")}},
	}
	for name, text := range map[string]string{
		"bridge":         `{"type":"bridge","ipam":{"type":"dhcp"}}`,
		"bridge gateway": `{"type":"bridge","isDefaultGateway":true,"ipMasq":true,"ipMasqBackend":"nftables","ipam":{"type":"dhcp"}}`,
		"ptp":            `{"type":"ptp","ipMasq":true,"ipMasqBackend":"nftables","ipam":{"type":"dhcp"}}`,
		"host-device":    `{"type":"host-device","device":"ens1","ipam":{"type":"dhcp"}}`,
	} {
		conf := confOf(text)
		p := Builtin()[conf.Type]
		in := Input{Conf: conf, Request: request(), IPAM: &model.Result{}, Answers: state.Answers{}, IPAMTiming: LinkOnly}
		queries, err := p.Observe(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, q := range queries {
			if q.Space == state.Host && (q.Link == "ens1" || q.Device.Name == "ens1") {
				in.Answers[q] = state.Answer{Found: true, Link: state.Link{Name: "ens1", MAC: state.SeedMAC("ens1"), MTU: 1500}}
			}
		}
		linkOnly, err := p.Plan(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, a := range append(linkOnly.Fragment.Pod.Addrs, linkOnly.Fragment.Host.Addrs...) {
			if !a.Prefix.Addr().IsLinkLocalUnicast() {
				t.Errorf("%s: %s is planned before the addresses are known", name, a)
			}
		}
		if n := len(
			linkOnly.Fragment.Pod.Routes,
		) + len(
			linkOnly.Fragment.Host.Routes,
		) + len(
			linkOnly.Fragment.Host.Tables,
		); n > 0 {
			t.Errorf("%s: %d routes and tables are planned before the addresses are known", name, n)
		}
		for which, result := range results {
			in.IPAMTiming, in.IPAM = LinkMade, result
			complete, err := p.Plan(in)
			if err != nil {
				t.Errorf("%s, %s: %v", name, which, err)
				continue
			}
			for _, s := range []state.SpaceName{state.Host, state.Pod} {
				contained(t, name+", "+which, *linkOnly.Fragment.Space(s), *complete.Fragment.Space(s))
			}
		}
	}
}

func contained(t *testing.T, desc string, part, full state.Space) {
	t.Helper()
	for i := range reflect.TypeOf(part).NumField() {
		p, w := reflect.ValueOf(part).Field(i), reflect.ValueOf(full).Field(i)
		for k := range p.Len() {
			found := false
			for m := range w.Len() {
				found = found || reflect.DeepEqual(p.Index(k).Interface(), w.Index(m).Interface())
			}
			if !found {
				t.Errorf("%s: %v is planned for the interface only, and not once addresses are known: %v", desc, p.Index(k), w)
			}
		}
	}
}

// An on-link route has no gateway, however IPAM expresses that.
func TestOnLinkRoute(t *testing.T) {
	link := int(state.ScopeLink)
	dst := netip.MustParsePrefix("192.168.9.0/24")
	a := addressed{gw4: netip.MustParseAddr("10.1.0.1"), routes: []model.Route{
		{Dst: dst, GW: netip.IPv4Unspecified(), Scope: &link, Priority: 1},
		{Dst: dst, Scope: &link, Priority: 2},
		{Dst: dst, GW: netip.IPv4Unspecified(), Priority: 3},
		{Dst: dst, Priority: 4},
	}}
	var gateways []string
	for _, r := range a.podRoutes("eth0") {
		gateways = append(gateways, r.Gw.String())
	}
	if want := []string{"invalid IP", "invalid IP", "invalid IP", "10.1.0.1"}; !slices.Equal(gateways, want) {
		t.Errorf("gateways %v, want %v", gateways, want)
	}
}
