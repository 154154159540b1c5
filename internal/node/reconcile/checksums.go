// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// Some network cards compute wrong checksums for packets inside of VXLAN; pods then reach each other with ping and
// nothing else. So the first peers that answer are asked once, through each device, whether packets arrive whole. Where
// they do not, and only there, the plan has the kernel compute checksums.

const (
	// probed bounds how many peers are asked at a time.
	probed = 3
	// The wait after nobody has answered doubles from the first to the longest.
	firstAsk   = time.Second
	longestAsk = 10 * time.Minute
)

// checksums are what is known of the devices.
type checksums struct {
	via      map[string]string // the underlay of a device about which there is a verdict
	told     map[string]string // the verdicts
	bad      []string          // the devices with the fault
	verdicts chan map[string]effect.Verdict
	busy     bool // somebody asks
	asking   sync.WaitGroup
	next     <-chan time.Time // after nobody has answered
	wait     time.Duration
	turn     int
}

func newChecksums() *checksums {
	return &checksums{
		via: map[string]string{}, told: map[string]string{}, verdicts: make(chan map[string]effect.Verdict, 1),
		wait: firstAsk,
	}
}

// targets are the far ends to ask through a device, some of them: those that come behind self in the order of names, so
// that not all nodes ask the same ones, and with each turn the next.
func targets(t mesh.Topology, device string, turn int) []netip.Addr {
	var out []netip.Addr
	first, _ := slices.BinarySearchFunc(t.Peers, t.Self, func(p mesh.Peer, self string) int {
		return strings.Compare(p.Name, self)
	})
	for i := range t.Peers {
		p := t.Peers[(first+turn*probed+i)%len(t.Peers)]
		for _, n := range p.Fragment.Host.Neighs {
			if n.Link == device {
				out = append(out, n.IP)
			}
		}
		if len(out) >= probed {
			break
		}
	}
	return out
}

// underlayOf is the name of the link that the packets of a device leave through.
func underlayOf(t mesh.Topology, device state.Link) string {
	for _, u := range t.Underlay {
		if u.Address == device.Vxlan.Local {
			return u.Link
		}
	}
	return ""
}

// probe begins to ask where there is a device without a verdict.
func (l *loop) probe(ctx context.Context) {
	c := l.checksums
	if c.busy || c.next != nil || l.seen == nil {
		return
	}
	t, ask := l.Status().Topology, map[string][]netip.Addr{}
	for _, device := range t.Node.Host.Links {
		if device.Vxlan == nil || c.via[device.Name] == underlayOf(t, device) {
			continue
		}
		if to := targets(t, device.Name, c.turn); len(to) > 0 {
			ask[device.Name] = to
		}
	}
	if len(ask) == 0 {
		return
	}
	c.busy = true
	c.turn++
	c.asking.Go(func() {
		found := map[string]effect.Verdict{}
		for device, to := range ask {
			for _, a := range to {
				v, err := effect.Checksums(ctx, l.cfg.NS, a)
				if err != nil && ctx.Err() == nil {
					l.cfg.Log.Debug("checksums", "device", device, "err", err)
				}
				if found[device] = v; v != effect.Unknown {
					break
				}
			}
		}
		c.verdicts <- found // there is room: one asks at a time
	})
}

// judge takes verdicts; true when there is a new one.
func (l *loop) judge(found map[string]effect.Verdict) bool {
	c, changed := l.checksums, false
	c.busy = false
	for _, v := range found {
		if v == effect.Unknown && c.next == nil {
			c.next = l.cfg.After(c.wait)
			c.wait = min(2*c.wait, longestAsk)
		}
	}
	for _, device := range l.Status().Topology.Node.Host.Links {
		v := found[device.Name]
		if v == effect.Unknown || device.Vxlan == nil {
			continue
		}
		c.via[device.Name] = underlayOf(l.Status().Topology, device)
		if v == effect.Whole && slices.Contains(c.bad, device.Name) {
			v = effect.Broken // it is well because the kernel computes them
		}
		changed = changed || c.told[device.Name] != v.String()
		c.told[device.Name] = v.String()
		if v == effect.Broken && !slices.Contains(c.bad, device.Name) {
			l.cfg.Log.Warn("packets in the tunnel arrive with wrong checksums: from now on the kernel computes them",
				"device", device.Name,
				"hint", "look for a newer driver of the network card of "+c.via[device.Name])
			c.bad = append(c.bad, device.Name)
		}
	}
	return changed
}
