// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/netns"
)

// Target is one address family of one peer.
type Target struct {
	Name    string
	Backend string
	// Underlay is the peer's address in the underlay, UnderlayMTU the MTU of this node's uplink.
	Underlay    netip.Addr
	UnderlayMTU int
	// Overlay is the first address of the peer's podCIDR or block. Tunnel reports that there is a tunnel, whose end has
	// the address, unless addresses are allocated from pools and a pod has it.
	Overlay    netip.Addr
	OverlayMTU int
	Tunnel     bool
}

// Problem is what is wrong on the path to a peer; empty: nothing.
type Problem string

// These are the problems that can be found.
const (
	None          Problem = ""
	Underlay      Problem = "underlay"
	Encapsulation Problem = "encapsulation"
	MTU           Problem = "mtu"
	Checksum      Problem = "checksum"
)

// Result is the result for one target. Its JSON keys are stable.
type Result struct {
	Peer     string     `json:"peer"`
	Backend  string     `json:"backend"`
	Underlay netip.Addr `json:"underlay"`
	Overlay  netip.Addr `json:"overlay"`
	// The state of each test: ok, or the failure.
	UnderlayState string `json:"underlayState"`
	OverlayState  string `json:"overlayState"`
	LargeState    string `json:"largeState"`
	ChecksumState string `json:"checksumState"`
	// MTU is the planned MTU, Passes the largest size that arrives; 0 if none does.
	MTU     int     `json:"mtu"`
	Passes  int     `json:"passes"`
	Problem Problem `json:"fault,omitempty"` // glossary: the stable key
	// Message describes the problem, Hint how to fix it.
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

const (
	ok     = "ok"
	broken = "broken"
	small  = 64
	expiry = time.Second
	// parallel is how many targets are tested in parallel.
	parallel = 32
)

// All tests all targets, from inside ns (nil: the process's own namespace). The results are in the order of the
// targets.
func All(ctx context.Context, ns *netns.NS, targets []Target) ([]Result, error) {
	results, untested, err := Within(ctx, ns, targets)
	if err == nil && untested > 0 {
		err = ctx.Err()
	}
	return results, err
}

// Within tests all targets as All does, but only until ctx ends. It returns the results so far, in the order of the
// targets, and how many targets have none.
func Within(ctx context.Context, ns *netns.NS, targets []Target) (results []Result, untested int, err error) {
	all, errs := make([]Result, len(targets)), make([]error, len(targets))
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, t := range targets {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				all[i], errs[i] = one(ctx, ns, t)
			}
		})
	}
	group.Wait()
	results = []Result{}
	var failed []error
	for i, r := range all {
		switch {
		case errs[i] == nil:
			results = append(results, r)
		case ctx.Err() != nil:
			untested++
		default:
			failed = append(failed, errs[i])
		}
	}
	return results, untested, errors.Join(failed...)
}

// one tests one target. It returns an error if ctx ends before it is known whether packets arrive.
func one(ctx context.Context, ns *netns.NS, t Target) (Result, error) {
	p := prober{
		ns: ns, t: t, r: Result{
			Peer: t.Name, Backend: t.Backend, Underlay: t.Underlay, Overlay: t.Overlay, MTU: t.OverlayMTU,
		},
	}
	p.r.LargeState, p.r.ChecksumState = "not tested", "not tested"
	if err := p.states(ctx); err != nil {
		return p.r, fmt.Errorf("peer %s: %w", t.Name, err)
	}
	p.diagnose()
	return p.r, nil
}

type prober struct {
	ns *netns.NS
	t  Target
	r  Result
	// expire: packets to Overlay are sent so that they expire at the peer, which answers, because Overlay does not: it is
	// a pod's, to which a policy denies them.
	expire bool
	// cut: ctx ended before the largest size that passes was found.
	cut bool
}

// states runs the tests.
func (p *prober) states(ctx context.Context) (err error) {
	var underlay error
	var group sync.WaitGroup
	group.Go(func() { underlay = p.underlay(ctx, small) }) // a silent peer costs the wait only once
	expires := false
	if p.t.Tunnel {
		group.Go(func() { expires = p.expires(ctx) })
	}
	overlay := p.overlay(ctx, small)
	group.Wait()
	if errors.Is(overlay, failure{errSilence.Error()}) && expires {
		p.expire, overlay = true, nil
	}
	if p.r.UnderlayState, err = p.state(underlay); err != nil {
		return err
	}
	if p.r.OverlayState, err = p.state(overlay); err != nil {
		return err
	}
	if p.r.OverlayState != ok {
		if p.r.UnderlayState == ok && p.t.Tunnel { // the outer packets' checksums may be wrong
			return unlessEnded(ctx, p.checksums(ctx, p.t.Underlay))
		}
		return nil
	}
	p.r.Passes = small
	if p.r.LargeState, err = p.state(p.overlay(ctx, p.t.OverlayMTU)); err != nil {
		return err
	}
	if p.r.LargeState == ok {
		p.r.Passes = p.t.OverlayMTU
	} else if p.r.Passes, err = p.search(ctx, p.t.OverlayMTU); err != nil {
		p.cut = true
		return unlessEnded(ctx, err)
	}
	to := p.t.Overlay
	if !p.t.Tunnel {
		to = p.t.Underlay
	}
	return p.checksums(ctx, to)
}

// unlessEnded returns the error, unless it is because ctx has ended: what is known by then is a result.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *prober) underlay(ctx context.Context, size int) error {
	a, err := echo{ns: p.ns, to: p.t.Underlay, size: size}.ask(ctx)
	return verdict(a, err)
}

// expires reports whether a packet through the tunnel expires at the peer. It waits for the answer to one packet only:
// the peer's kernel limits the rate of them.
func (p *prober) expires(ctx context.Context) bool {
	a, err := echo{ns: p.ns, to: p.t.Overlay, size: small, ttl: 1, patience: expiry}.ask(ctx)
	return err == nil && a.arrived
}

// overlay tests the peer's own tunnel address; without a tunnel, a packet must expire at the peer.
func (p *prober) overlay(ctx context.Context, size int) error {
	if p.expire {
		a, err := echo{ns: p.ns, to: p.t.Overlay, size: size, ttl: 1}.ask(ctx)
		return verdict(a, err)
	}
	_, err := p.t.ask(ctx, echo{ns: p.ns, size: size})
	return err
}

// ask sends an echo through the mesh, and returns how long the answer took.
func (t Target) ask(ctx context.Context, e echo) (time.Duration, error) {
	if e.to = t.Overlay; !t.Tunnel {
		e.ttl = 1
	}
	a, err := e.ask(ctx)
	if err == nil && !t.Tunnel && a.from == t.Underlay && a.mtu == 0 {
		return a.took, nil // without pods it has no route to its own podCIDR, and reports that
	}
	return a.took, verdict(a, err)
}

// Once sends one packet of size bytes through the mesh, and returns how long the answer took, at most patience. Without a
// tunnel it goes to the peer's own address: that is the same path, and the kernel does not limit the rate of replies. With
// one, an address that does not answer may be a pod's, to which a policy denies packets: then a second packet expires at
// the peer. An error means that it did not arrive, or that it could not be sent.
func (t Target) Once(ctx context.Context, ns *netns.NS, size int, patience time.Duration) (time.Duration, error) {
	e := echo{ns: ns, size: size, patience: patience}
	if t.Tunnel {
		took, err := t.ask(ctx, e)
		if !errors.Is(err, failure{errSilence.Error()}) {
			return took, err
		}
		e.to, e.ttl = t.Overlay, 1
		a, err := e.ask(ctx)
		return a.took, verdict(a, err)
	}
	e.to = t.Underlay
	a, err := e.ask(ctx)
	return a.took, verdict(a, err)
}

// Small is the size in bytes of packets that every path carries.
const Small = small

// failure is a test's failure as text.
type failure struct{ text string }

func (s failure) Error() string { return s.text }

func verdict(a answer, err error) error {
	switch {
	case errors.Is(err, errSilence), errors.Is(err, errTooBig):
		return failure{err.Error()}
	case err != nil:
		return err
	case a.arrived:
		return nil
	case a.mtu > 0:
		return failure{fmt.Sprintf("%s %s: %d", a.from, a.says, a.mtu)}
	}
	return failure{fmt.Sprintf("%s %s", a.from, a.says)}
}

// state returns the state of a test; an error is one that prevented the test.
func (p *prober) state(err error) (string, error) {
	var s failure
	switch {
	case err == nil:
		return ok, nil
	case errors.As(err, &s):
		return s.text, nil
	case unreachable(err):
		return err.Error(), nil
	}
	return "", err
}

// search finds the largest size that passes, between a small packet and one that does not pass. Through a tunnel,
// echoes are not rate-limited; without one the underlay is the same path. With an error it returns what has passed so far.
func (p *prober) search(ctx context.Context, tooLarge int) (int, error) {
	passes, not, to := small, tooLarge, p.t.Overlay
	if !p.t.Tunnel {
		to = p.t.Underlay
	}
	for not-passes > 1 {
		at := (passes + not) / 2
		e := echo{ns: p.ns, to: to, size: at}
		if p.expire {
			e.ttl = 1
		}
		a, err := e.ask(ctx)
		state, err := p.state(verdict(a, err))
		if err != nil {
			return passes, err
		}
		switch {
		case state == ok:
			passes = at
		case a.mtu >= passes && a.mtu < not: // a router reported it
			passes, not = a.mtu, a.mtu+1
		default:
			not = at
		}
	}
	return passes, nil
}

// checksums tests with datagrams; only the peer itself can be tested.
func (p *prober) checksums(ctx context.Context, to netip.Addr) error {
	v, err := effect.Checksums(ctx, p.ns, to)
	if unreachable(err) {
		v, err = effect.Unknown, nil
	}
	p.r.ChecksumState = map[effect.Verdict]string{
		effect.Unknown: "unknown", effect.ChecksumsOK: ok, effect.ChecksumsBroken: broken,
	}[v]
	return err
}
