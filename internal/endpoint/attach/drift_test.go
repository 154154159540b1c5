// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

func TestDecide(t *testing.T) {
	now := time.Unix(1e9, 0)
	ago := func(d time.Duration) driftHistory { return driftHistory{repaired: now.Add(-d)} }
	node := func(want, have string) state.Difference {
		return state.Difference{Space: state.Host, Want: want, Have: have}
	}
	pod := func(want, have string) state.Difference {
		return state.Difference{Space: state.Pod, Want: want, Have: have}
	}
	const route, link = "route 10.8.0.2/32 dev a", "link eth0 kind veth mtu 1500 up on peer a@host"
	known := func(p driftHistory) driftHistory { p.recurring = true; return p }
	for name, c := range map[string]struct {
		d     state.Difference
		not   bool // it cannot be put back
		joins bool // it is a port of a bridge in the pod
		past  driftHistory
		want  decision
	}{
		"node, missing": {d: node(route, ""), want: decision{repair: true, report: true}},
		"node, differs": {
			d: node(route, "route 10.8.0.2/32 dev b"), want: decision{repair: true, report: true},
		},
		"node, again": {
			d: node(route, ""), past: ago(time.Minute), want: decision{repair: true, recurs: true, report: true},
		},
		"node, again and again": {
			d: node(route, ""), past: known(ago(time.Minute)), want: decision{repair: true, recurs: true},
		},
		"node, long after": {
			d: node(route, ""), past: known(ago(10 * time.Minute)), want: decision{repair: true, report: true},
		},
		"node, impossible":     {d: node(link, ""), not: true, want: decision{report: true}},
		"node, impossible yet": {d: node(link, ""), not: true, past: driftHistory{left: true}, want: decision{}},
		"pod, missing":         {d: pod(route, ""), want: decision{repair: true, report: true}},
		"pod, missing again": {
			d: pod(route, ""), past: ago(9 * time.Minute), want: decision{recurs: true, report: true},
		},
		"pod, missing long after": {
			d: pod(route, ""), past: ago(11 * time.Minute), want: decision{repair: true, report: true},
		},
		"pod, left before": {
			d: pod(route, ""), past: driftHistory{repaired: now.Add(-time.Hour), left: true}, want: decision{},
		},
		"pod, differs": {d: pod(route, "route 10.8.0.2/32 dev b"), want: decision{report: true}},
		"pod, differs yet": {
			d: pod(route, "route 10.8.0.2/32 dev b"), past: driftHistory{left: true}, want: decision{},
		},
		"pod, further": {
			d: pod("no route 10.8.0.2/32 dev a", "route 10.8.0.2/32 dev a"), want: decision{report: true},
		},
		"pod, link down": {
			d: pod(link, "link eth0 kind veth mtu 1500 up off"), want: decision{repair: true, report: true},
		},
		"pod, link down, own MTU": {
			d: pod(link, "link eth0 kind veth mtu 1400 up off"), want: decision{repair: true, report: true},
		},
		"pod, off its VRF": {
			d:    pod("link eth0 mtu 1500 up on master blue alias a master x", "link eth0 mtu 1400 up on alias a master blue"),
			want: decision{repair: true, report: true},
		},
		"pod, off its VRF again": {
			d: pod("link eth0 up on master blue", "link eth0 up on"), past: ago(time.Minute),
			want: decision{recurs: true, report: true},
		},
		"pod, another VRF": {
			d: pod("link eth0 up on master blue", "link eth0 up on master red"), want: decision{report: true},
		},
		"pod, a guest off its bridge, often": {
			d: pod("link tap0 up on master br", "link tap0 up on"), joins: true, past: known(ago(time.Second)),
			want: decision{repair: true, recurs: true},
		},
		"pod, a guest on another bridge": {
			d: pod("link tap0 up on master br", "link tap0 up on master other"), joins: true,
			want: decision{repair: true, report: true},
		},
		"pod, a guest's port, own MTU": {
			d: pod("link tap0 mtu 1500 up on master br", "link tap0 mtu 1400 up on master br"), joins: true,
			want: decision{report: true},
		},
		"pod, a guest whose bridge is gone": {
			d: pod("link tap0 up on master br", "link tap0 up on"), joins: true, not: true, want: decision{report: true},
		},
		"pod, link down after its own MTU": {
			d: pod(link, "link eth0 kind veth mtu 1400 up off"), past: driftHistory{left: true, changed: true},
			want: decision{repair: true, report: true},
		},
		"pod, link down again, left": {
			d: pod(link, "link eth0 kind veth mtu 1500 up off"), past: driftHistory{left: true}, want: decision{},
		},
		"pod, own MTU": {d: pod(link, "link eth0 kind veth mtu 1400 up on"), want: decision{report: true}},
		"pod, own MAC": {
			d:    pod("link eth0 mac 02:00:00:00:00:01 up on", "link eth0 mac 02:00:00:00:00:02 up on"),
			want: decision{report: true},
		},
		"pod, setting": {
			d: pod("sysctl net/ipv4/ip_forward = 1", "0"), want: decision{repair: true, report: true},
		},
		"pod, setting again": {
			d: pod("sysctl net/ipv4/ip_forward = 1", "0"), past: ago(time.Second), want: decision{recurs: true, report: true},
		},
		"pod, weft's rules": {d: pod("nft table inet weft", ""), want: decision{repair: true, report: true}},
		"pod, weft's rules again": {
			d: pod("nft table inet weft", ""), past: ago(time.Second), want: decision{repair: true, recurs: true, report: true},
		},
		"pod, a guest's join, often": {
			d: pod("join tap0 eth0", ""), past: known(ago(time.Second)), want: decision{repair: true, recurs: true},
		},
		"pod, a guest's join, another": {
			d: pod("join tap0 eth0", "join tap0 eth0 how mirred"), want: decision{repair: true, report: true},
		},
	} {
		if got := decide(found{c.d, !c.not, c.joins}, c.past, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestDriftsAreForgotten: what is as planned again is not left any more, and a repair is remembered for ten minutes.
func TestDriftsAreForgotten(t *testing.T) {
	now := time.Unix(1e9, 0)
	var all drifts
	key := model.AttachmentKey{ContainerID: "c"}
	d := state.Difference{Space: state.Pod, Want: "route default dev eth0"}
	step := func(want decision) {
		t.Helper()
		got := decide(found{Difference: d, fixable: true}, all.history(key, d), now)
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		all.note(key, d, got, now)
	}
	step(decision{repair: true, report: true})
	now = now.Add(time.Minute)
	step(decision{recurs: true, report: true})
	step(decision{})
	now = now.Add(time.Hour)
	all.prune(key, []state.Difference{d}, now)
	step(decision{}) // the pod has never wanted it back
	all.prune(key, nil, now)
	if len(all.of) > 0 {
		t.Errorf("%v is remembered", all.of)
	}
	step(decision{repair: true, report: true})
	now = now.Add(time.Minute)
	all.prune(key, nil, now)
	step(decision{recurs: true, report: true})
	all.drop(key)
	if len(all.of) > 0 {
		t.Errorf("%v is remembered", all.of)
	}
}
