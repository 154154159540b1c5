// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/netns"
)

// Target is one family of one peer.
type Target struct {
	Name    string
	Backend string
	// Underlay is the peer's address on the wire, MTU the largest packet of this node's end of it.
	Underlay    netip.Addr
	UnderlayMTU int
	// Overlay is the first address of the peer's pods. Tunnel tells that the peer has it itself, and that there is a
	// tunnel.
	Overlay    netip.Addr
	OverlayMTU int
	Tunnel     bool
}

// Fault is where something is wrong.
type Fault string

// The faults.
const (
	None          Fault = ""
	Underlay      Fault = "underlay"
	Encapsulation Fault = "encapsulation"
	MTU           Fault = "mtu"
	Checksum      Fault = "checksum"
)

// Result is what was found out about a target. Its JSON keys are stable.
type Result struct {
	Peer     string     `json:"peer"`
	Backend  string     `json:"backend"`
	Underlay netip.Addr `json:"underlay"`
	Overlay  netip.Addr `json:"overlay"`
	// What was asked: ok, or why not.
	UnderlayState string `json:"underlayState"`
	OverlayState  string `json:"overlayState"`
	LargeState    string `json:"largeState"`
	ChecksumState string `json:"checksumState"`
	// MTU is what the plan promises, Passes what arrives; 0 when nothing does.
	MTU    int   `json:"mtu"`
	Passes int   `json:"passes"`
	Fault  Fault `json:"fault,omitempty"`
	// Message says what is wrong, Hint the way out.
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

const (
	ok     = "ok"
	broken = "broken"
	small  = 64
	// together is how many targets are asked at a time.
	together = 32
)

// All asks all targets, from inside ns (nil: the process's own namespace). The results are in the order of the targets.
func All(ctx context.Context, ns *netns.NS, targets []Target) ([]Result, error) {
	results, errs := make([]Result, len(targets)), make([]error, len(targets))
	var group sync.WaitGroup
	room := make(chan struct{}, together)
	for i, t := range targets {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			results[i], errs[i] = one(ctx, ns, t)
		})
	}
	group.Wait()
	return results, errors.Join(errs...)
}

// one asks one target.
func one(ctx context.Context, ns *netns.NS, t Target) (Result, error) {
	p := prober{
		ns: ns, t: t, r: Result{
			Peer: t.Name, Backend: t.Backend, Underlay: t.Underlay, Overlay: t.Overlay, MTU: t.OverlayMTU,
		},
	}
	p.r.LargeState, p.r.ChecksumState = "not asked", "not asked"
	if err := p.states(ctx); err != nil {
		return p.r, fmt.Errorf("peer %s: %w", t.Name, err)
	}
	p.judge()
	return p.r, nil
}

type prober struct {
	ns *netns.NS
	t  Target
	r  Result
}

// states asks.
func (p *prober) states(ctx context.Context) (err error) {
	if p.r.UnderlayState, err = p.say(p.underlay(ctx, small)); err != nil {
		return err
	}
	if p.r.OverlayState, err = p.say(p.overlay(ctx, small)); err != nil {
		return err
	}
	if p.r.OverlayState != ok {
		if p.r.UnderlayState == ok && p.t.Tunnel { // perhaps the outer packets' are wrong
			return p.checksums(ctx, p.t.Underlay)
		}
		return nil
	}
	p.r.Passes = small
	if p.r.LargeState, err = p.say(p.overlay(ctx, p.t.OverlayMTU)); err != nil {
		return err
	}
	if p.r.LargeState == ok {
		p.r.Passes = p.t.OverlayMTU
	} else if p.r.Passes, err = p.search(ctx, p.t.OverlayMTU); err != nil {
		return err
	}
	to := p.t.Overlay
	if !p.t.Tunnel {
		to = p.t.Underlay
	}
	return p.checksums(ctx, to)
}

func (p *prober) underlay(ctx context.Context, size int) error {
	a, err := echo{ns: p.ns, to: p.t.Underlay, size: size}.ask(ctx)
	return verdict(a, err)
}

// overlay asks the peer's own address in a tunnel; where there is none a packet is to end at the peer.
func (p *prober) overlay(ctx context.Context, size int) error {
	e := echo{ns: p.ns, to: p.t.Overlay, size: size}
	if p.t.Tunnel {
		a, err := e.ask(ctx)
		return verdict(a, err)
	}
	e.ttl = 1
	a, err := e.ask(ctx)
	if err == nil && a.from == p.t.Underlay && a.mtu == 0 {
		return nil // it has no route into its own prefix as long as it has no pod, and says so
	}
	return verdict(a, err)
}

// silent is an answer that is none, in words.
type silent struct{ text string }

func (s silent) Error() string { return s.text }

func verdict(a answer, err error) error {
	switch {
	case errors.Is(err, errSilence), errors.Is(err, errTooBig):
		return silent{err.Error()}
	case err != nil:
		return err
	case a.arrived:
		return nil
	case a.mtu > 0:
		return silent{fmt.Sprintf("%s %s: %d", a.from, a.says, a.mtu)}
	}
	return silent{fmt.Sprintf("%s %s", a.from, a.says)}
}

// say is an answer in words; an error is what keeps from asking.
func (p *prober) say(err error) (string, error) {
	var s silent
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

// search finds what passes: between a small packet, which does, and one that does not. In a tunnel echoes are answered
// without limit; elsewhere the underlay is the same way.
func (p *prober) search(ctx context.Context, tooLarge int) (int, error) {
	passes, not, to := small, tooLarge, p.t.Overlay
	if !p.t.Tunnel {
		to = p.t.Underlay
	}
	for not-passes > 1 {
		at := (passes + not) / 2
		a, err := echo{ns: p.ns, to: to, size: at}.ask(ctx)
		said, err := p.say(verdict(a, err))
		if err != nil {
			return 0, err
		}
		switch {
		case said == ok:
			passes = at
		case a.mtu >= passes && a.mtu < not: // somebody says it
			passes, not = a.mtu, a.mtu+1
		default:
			not = at
		}
	}
	return passes, nil
}

// checksums asks by datagrams; only where the peer itself answers can it be told.
func (p *prober) checksums(ctx context.Context, to netip.Addr) error {
	v, err := effect.Checksums(ctx, p.ns, to)
	if unreachable(err) {
		v, err = effect.Unknown, nil
	}
	p.r.ChecksumState = map[effect.Verdict]string{effect.Unknown: "unknown", effect.Whole: ok, effect.Broken: broken}[v]
	return err
}
