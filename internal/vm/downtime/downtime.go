// SPDX-License-Identifier: Apache-2.0

// Package downtime measures the downtime of a live migration from a peer of the VM: numbered packets and lines of the
// VM, with their arrival times. A line that is missing or out of order is an error, and so is a connection that ends.
package downtime

import "time"

// Measurement is the downtime of one migration.
type Measurement struct {
	// FirstPacket is the time from the VM's resumption to its first packet, Blackout from the last packet before to the
	// first one after. Replies is the longest time between two replies on one connection, Stream that between two lines
	// on another, on which only the VM sends.
	FirstPacket, Blackout, Replies, Stream time.Duration
	// Lost is the number of lost packets of the VM.
	Lost int
}

// Margin is the time before the VM's resumption, and after its first lines, that belongs to a migration.
const Margin = 200 * time.Millisecond

// Measure returns the downtime of the migration after which the VM resumed at a time.
func (p *Peer) Measure(resumed time.Time) Measurement {
	p.mu.Lock()
	defer p.mu.Unlock()
	var g Measurement
	since := after(p.packets.all, resumed)
	until := p.packets.all[:len(p.packets.all)-len(since)]
	if len(since) > 0 {
		g.FirstPacket = since[0].at.Sub(resumed)
	}
	if len(since) > 0 && len(until) > 0 {
		last := until[len(until)-1]
		g.Blackout, g.Lost = since[0].at.Sub(last.at), since[0].n-last.n-1
	}
	before := resumed.Add(-Margin)
	g.Replies, g.Stream = longest(after(p.replies.all, before)), longest(after(p.stream.all, before))
	return g
}

// MeasureFrom returns the downtime of a migration that began at a time, if it is not known when the VM resumed: the longest
// times without packets and lines since then, without FirstPacket.
func (p *Peer) MeasureFrom(began time.Time) Measurement {
	p.mu.Lock()
	defer p.mu.Unlock()
	packets := after(p.packets.all, began)
	g := Measurement{
		Blackout: longest(packets), Replies: longest(after(p.replies.all, began)), Stream: longest(after(p.stream.all, began)),
	}
	for i := 1; i < len(packets); i++ {
		g.Lost += max(0, packets[i].n-packets[i-1].n-1)
	}
	return g
}

// after returns the arrivals after a time.
func after(all []arrival, t time.Time) []arrival {
	i := len(all)
	for i > 0 && all[i-1].at.After(t) {
		i--
	}
	return all[i:]
}

// longest returns the longest time between two arrivals.
func longest(all []arrival) (out time.Duration) {
	for i := 1; i < len(all); i++ {
		out = max(out, all[i].at.Sub(all[i-1].at))
	}
	return out
}
