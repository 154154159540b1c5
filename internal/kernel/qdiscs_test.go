// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestEveryRateIsReadBack sets rates and bursts of all sizes and reads each as it was wanted: the kernel reports a
// burst as a duration.
func TestEveryRateIsReadBack(t *testing.T) {
	s := pair(t)
	f := ptp(1)
	mustApply(t, s, f)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range 300 {
		q := state.Qdisc{
			Link: "veth0001", Kind: state.TBF,
			Rate: 1 + r.Uint64N(1<<r.IntN(41)), Burst: 1 + uint32(r.Uint64N(1<<r.IntN(32))),
			Limit: 1 + uint32(r.Uint64N(1<<r.IntN(33))),
		}
		shaped := state.Fragment{Owner: f.Owner, Host: state.Space{Qdiscs: []state.Qdisc{q}}}
		if err := s.Apply(t.Context(), shaped); err != nil {
			t.Fatalf("seed %d, step %d: %s: %v", seed, i, q, err)
		}
		before := s.Host.Writes()
		if d, err := s.Diff(t.Context(), shaped); err != nil || len(d) > 0 {
			t.Errorf("seed %d, step %d: %v %v", seed, i, d, err)
		}
		if err := s.Apply(t.Context(), shaped); err != nil || s.Host.Writes() != before {
			t.Errorf("seed %d, step %d: the second Apply wrote %d requests: %v", seed, i, s.Host.Writes()-before, err)
		}
		for _, other := range []state.Qdisc{
			{Link: q.Link, Kind: q.Kind, Rate: q.Rate + 1, Burst: q.Burst, Limit: q.Limit},
			{Link: q.Link, Kind: q.Kind, Rate: q.Rate, Burst: q.Burst, Limit: q.Limit - 1},
		} {
			wrong := state.Fragment{Owner: f.Owner, Host: state.Space{Qdiscs: []state.Qdisc{other}}}
			if d, err := s.Diff(t.Context(), wrong); err != nil || len(d) != 1 {
				t.Errorf("seed %d, step %d: %s is taken for %s: %v %v", seed, i, q, other, d, err)
			}
		}
	}
}

// TestForeignQdiscs: a root qdisc that another program set is an error and stays; a foreign filter stays, and its
// qdisc.
func TestForeignQdiscs(t *testing.T) {
	nettest.Need(t, "ifb")
	s := pair(t)
	f := ptp(1)
	mustApply(t, s, f)
	bucket := state.Qdisc{Link: "veth0001", Kind: state.TBF, Rate: 125_000, Burst: 20_000, Limit: 23_125}
	shaped := state.Fragment{Owner: f.Owner, Host: state.Space{Qdiscs: []state.Qdisc{bucket}}}
	nettest.Run(t, s.Host.ns, "tc", "qdisc", "add", "dev", "veth0001", "root", "handle", "5:", "tbf", "rate", "1mbit",
		"burst", "20000b", "limit", "23125b")
	if err := s.Apply(t.Context(), shaped); !errors.Is(err, ErrForeign) ||
		!strings.Contains(err.Error(), "tbf and handle 5") {
		t.Errorf("over another's qdisc: %v", err)
	}
	if d, err := s.Diff(t.Context(), shaped); err != nil || len(d) != 1 {
		t.Errorf("another's qdisc is taken for ours: %v %v", d, err)
	}
	if err := s.Remove(t.Context(), shaped); err != nil {
		t.Error(err)
	}
	if out := nettest.Run(t, s.Host.ns, "tc", "qdisc", "show", "dev", "veth0001"); !strings.Contains(out, "tbf 5:") {
		t.Errorf("another's qdisc is gone: %s", out)
	}

	other := state.Fragment{Owner: f.Owner, Pod: state.Space{
		Links:  []state.Link{{Name: "ifb0", Kind: state.Ifb, Up: state.On()}},
		Qdiscs: []state.Qdisc{{Link: "eth0", Kind: state.Ingress, Redirect: "ifb0"}},
	}}
	nettest.Run(t, s.PodNS, "tc", "qdisc", "add", "dev", "eth0", "ingress")
	nettest.Run(t, s.PodNS, "tc", "filter", "add", "dev", "eth0", "parent", "ffff:", "prio", "5", "protocol", "ip", "u32",
		"match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "lo")
	mustApply(t, s, other)
	if d, err := s.Diff(t.Context(), other); err != nil || len(d) > 0 {
		t.Errorf("beside another's filter: %v %v", d, err)
	}
	if err := s.Remove(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	out := nettest.Run(t, s.PodNS, "tc", "filter", "show", "dev", "eth0", "parent", "ffff:")
	if !strings.Contains(out, "pref 5") || strings.Contains(out, "ifb0") {
		t.Errorf("filters after Remove: %s", out)
	}
}

// TestQdiscsOfNewLinks: links of this Apply are not read, and shaping them takes no additional exchange.
func TestQdiscsOfNewLinks(t *testing.T) {
	exchanges := func(shape bool) int {
		s := pair(t)
		f := ptp(1)
		if shape {
			f.Host.Qdiscs = []state.Qdisc{{Link: "veth0001", Kind: state.TBF, Rate: 125_000, Burst: 20_000, Limit: 23_125}}
			f.Pod.Qdiscs = []state.Qdisc{{Link: "eth0", Kind: state.TBF, Rate: 125_000, Burst: 20_000, Limit: 23_125}}
		}
		mustApply(t, s, f)
		return s.Host.Writes() + s.Pod.Writes()
	}
	if plain, shaped := exchanges(false), exchanges(true); shaped != plain+2 {
		t.Errorf("%d requests without and %d with two token buckets, want two more", plain, shaped)
	}
}
