// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// settings are those that links report by number. A wrong number would read or write another setting.
var settings = map[string]string{
	"ipv4": "forwarding proxy_arp accept_redirects secure_redirects send_redirects rp_filter arp_filter arp_announce arp_ignore " +
		"arp_accept arp_notify accept_local route_localnet",
	"ipv6": "forwarding accept_ra accept_redirects autoconf proxy_ndp router_solicitations disable_ipv6 accept_dad ndisc_notify keep_addr_on_down addr_gen_mode",
}

// TestNumbersOfSettings writes each setting to its file and reads it from the link, and vice versa.
func TestNumbersOfSettings(t *testing.T) {
	s := pair(t)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "br.7", "type", "bridge")
	for family, words := range settings {
		for _, setting := range strings.Fields(words) {
			name := "net/" + family + "/conf/br.7/" + setting
			if c, ok := sysctl.Of(name); !ok || setting != sysctl.AddrGenMode && c.Number() < 0 {
				t.Fatalf("%s is not known", name)
			}
			for _, value := range []string{"1", "0", "1"} {
				if err := s.Host.conf.Write([]sysctl.Pair{{Name: name, Value: value}}); err != nil {
					t.Fatal(err)
				}
				want := state.Sysctl{Name: name, Value: value}
				v, err := readView(t.Context(), state.Host, s.Host, state.Space{Sysctls: []state.Sysctl{want}})
				if err != nil {
					t.Fatal(err)
				}
				if have, ok := v.sysctls.fromLink(want); !ok || have != value {
					t.Errorf("%s = %s in the file, the link tells %q (%t)", name, value, have, ok)
				}
			}
			f := state.Fragment{Host: state.Space{Sysctls: []state.Sysctl{{Name: name, Value: "0"}}}}
			mustApply(t, s, f)
			if have, err := s.Host.conf.Read([]string{name}); err != nil || have[name].Text != "0" {
				t.Errorf("%s: the file has %q after Apply, want 0 (%v)", name, have[name].Text, err)
			}
		}
	}
}

// TestIPv6SwitchedOff: a runtime may have disabled IPv6 in a pod; an address of the plan needs it.
func TestIPv6SwitchedOff(t *testing.T) {
	s := pair(t)
	nettest.Run(t, s.Pod.ns, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
	mustApply(t, s, ptp(1))
	nettest.Run(t, s.Pod.ns, "ping", "-n", "-c1", "-W20", "fd00:1::1")
}

// TestSettingsThatAreMissing: a setting that this kernel does not have is an error, or ignored.
func TestSettingsThatAreMissing(t *testing.T) {
	s := pair(t)
	missing := state.Sysctl{Name: "net/ipv9/forward", Value: "1"}
	f := state.Fragment{Host: state.Space{Sysctls: []state.Sysctl{missing}}}
	if err := s.Apply(t.Context(), f); err == nil || !strings.Contains(err.Error(), missing.Name) {
		t.Errorf("apply: %v", err)
	}
	f.Host.Sysctls[0].IfPresent = true
	mustApply(t, s, f)
	f.Host.Sysctls[0] = state.Sysctl{Name: "net/ipv4/conf/nolink/rp_filter", Value: "1"}
	if err := s.Apply(t.Context(), f); err == nil {
		t.Error("a setting of a link that is not there was applied")
	}
}

// A write-only setting is written each time, and is no difference.
func TestHiddenSetting(t *testing.T) {
	s := pair(t)
	flush := state.Sysctl{Name: "net/ipv4/route/flush", Value: "1"}
	q := state.Query{Space: state.Pod, Sysctl: flush.Name}
	answers, err := s.Observe(t.Context(), []state.Query{q})
	if err != nil || answers[q].Found {
		t.Errorf("%+v %v", answers[q], err)
	}
	mustApply(t, s, state.Fragment{Owner: "flush", Pod: state.Space{Sysctls: []state.Sysctl{flush}}})
}

// TestPreviousSettings: a setting is reported with its value before it is changed, once, and not changed when that fails;
// those of weft's own links are not reported.
func TestPreviousSettings(t *testing.T) {
	s := pair(t)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "br.7", "type", "bridge")
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "mine", "type", "bridge")
	nettest.Run(t, s.Host.ns, "ip", "link", "set", "mine", "alias", "weft:mesh")
	nettest.Run(t, s.Host.ns, "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv4.conf.br/7.proxy_arp=0", "net.ipv4.conf.br/7.route_localnet=0")
	seen, failure := map[string]string{}, errors.New("disk is full")
	var refuse error
	s.Host.Changing = func(name, value string) error {
		if _, twice := seen[name]; twice {
			t.Errorf("%s is reported twice", name)
		}
		if refuse == nil {
			seen[name] = value
		}
		return refuse
	}
	f := state.Fragment{Host: state.Space{
		Links: []state.Link{{Name: "new", Kind: state.Bridge}},
		Sysctls: []state.Sysctl{
			{Name: "net/ipv4/ip_forward", Value: "1", Shared: true},
			{Name: "net/ipv4/conf/br.7/proxy_arp", Value: "1"},
			{Name: "net/ipv4/conf/br.7/route_localnet", Value: "1"},
			{Name: "net/ipv4/conf/mine/proxy_arp", Value: "1"},
			{Name: "net/ipv4/conf/mine/route_localnet", Value: "1"},
			{Name: "net/ipv4/conf/new/proxy_arp", Value: "1"},
			{Name: "net/ipv4/neigh/br.7/proxy_delay", Value: "0"},
		},
	}}
	refuse = failure
	if err := s.Apply(t.Context(), f); !errors.Is(err, failure) {
		t.Fatalf("a setting is changed whose value could not be kept: %v", err)
	}
	if now := nettest.Run(t, s.Host.ns, "sysctl", "-n", "net.ipv4.ip_forward"); strings.TrimSpace(now) != "0" {
		t.Errorf("ip_forward is %s", now)
	}
	refuse = nil
	mustApply(t, s, f)
	mustApply(t, s, f)
	want := map[string]string{
		"net/ipv4/ip_forward": "0", "net/ipv4/conf/br.7/proxy_arp": "0", "net/ipv4/conf/br.7/route_localnet": "0",
		"net/ipv4/neigh/br.7/proxy_delay": seen["net/ipv4/neigh/br.7/proxy_delay"],
	}
	if !maps.Equal(seen, want) || seen["net/ipv4/neigh/br.7/proxy_delay"] == "" {
		t.Errorf("reported %v, want %v", seen, want)
	}
}
