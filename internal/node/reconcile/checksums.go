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

// Some network cards compute wrong checksums for the inner packets of VXLAN; then pods reach each other with ping
// only. So the first peers that respond are probed once through each device. If packets arrive broken, and only then,
// the plan makes the kernel compute the checksums.

const (
	// probed limits how many peers are probed at a time.
	probed = 3
	// The pause after probes without a response doubles from the first to the longest.
	firstAsk   = time.Second
	longestAsk = 10 * time.Minute
)

// checksums is what is known about the devices.
type checksums struct {
	via       map[string]string // the uplink of each device with a verdict
	verdictOf map[string]string // the verdicts
	bad       []string          // the devices with the fault
	verdicts  chan map[string]effect.Verdict
	busy      bool // a probe is running
	asking    sync.WaitGroup
	next      <-chan time.Time // after probes without a response
	wait      time.Duration
	turn      int
}

func newChecksums() *checksums {
	return &checksums{
		via: map[string]string{}, verdictOf: map[string]string{}, verdicts: make(chan map[string]effect.Verdict, 1),
		wait: firstAsk,
	}
}

// targets returns some of the tunnel addresses to probe through a device: those after self in the order of names, so
// that nodes probe different peers, and with each turn the next ones.
func targets(t mesh.Topology, device string, turn int) []netip.Addr {
	var out []netip.Addr
	first, _ := slices.BinarySearchFunc(t.Peers, t.Self, func(p *mesh.Peer, self string) int {
		return strings.Compare(p.Name, self)
	})
	for i := range t.Peers {
		p := t.Peers[(first+turn*probed+i)%len(t.Peers)]
		for _, n := range p.Neighs() {
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

// underlayOf returns the name of the link through which the packets of a device leave.
func underlayOf(t mesh.Topology, device state.Link) string {
	for _, u := range t.Underlay {
		if u.Address == device.VXLAN.Local {
			return u.Link
		}
	}
	return ""
}

// probe starts a probe if there is a device without a verdict.
func (l *loop) probe(ctx context.Context) {
	c := l.checksums
	if c.busy || c.next != nil || l.seen == nil {
		return
	}
	t, ask := l.Status().Topology, map[string][]netip.Addr{}
	for _, device := range t.Node.Host.Links {
		if device.VXLAN == nil || c.via[device.Name] == underlayOf(t, device) {
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
					l.cfg.Log.Debug("checksum probe failed", "interface", device, "err", err)
				}
				if found[device] = v; v != effect.Unknown {
					break
				}
			}
		}
		c.verdicts <- found // never blocks: one probe at a time
	})
}

// record records verdicts; it returns true if there is a new one.
func (l *loop) record(found map[string]effect.Verdict) bool {
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
		if v == effect.Unknown || device.VXLAN == nil {
			continue
		}
		c.via[device.Name] = underlayOf(l.Status().Topology, device)
		if v == effect.ChecksumsOK && slices.Contains(c.bad, device.Name) {
			v = effect.ChecksumsBroken // correct only because the kernel computes them
		}
		changed = changed || c.verdictOf[device.Name] != v.String()
		c.verdictOf[device.Name] = v.String()
		if v == effect.ChecksumsBroken && !slices.Contains(c.bad, device.Name) {
			l.cfg.Log.Warn("packets in the tunnel arrive with wrong checksums, and the kernel computes them from now on",
				"interface", device.Name,
				"hint", "update the driver of the network card of "+c.via[device.Name])
			c.bad = append(c.bad, device.Name)
		}
	}
	return changed
}
