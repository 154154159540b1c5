// SPDX-License-Identifier: Apache-2.0

// Package gap listens to a virtual machine that migrates, from where somebody else stands: numbered packets and lines
// that it sends, each noted when it arrives, and how long nothing did. A line that is missing or another one than it
// should be is an error, and so is a connection that ends.
package gap

import "time"

// Gap is one migration.
type Gap struct {
	// First is from the machine's going on to its first packet, Blackout from the last one before to that. Answers is the
	// longest time between two answers on one connection, Stream that between two lines on another, on which only the
	// machine speaks.
	First, Blackout, Answers, Stream time.Duration
	// Lost are packets that the machine has sent and that did not come.
	Lost int
}

// Around is how long before the machine's going on, and after its first words there, counts to a migration.
const Around = 200 * time.Millisecond

// Around looks at what arrived around the time when the machine went on.
func (p *Peer) Around(resumed time.Time) Gap {
	p.mu.Lock()
	defer p.mu.Unlock()
	var g Gap
	behind := after(p.packets.all, resumed)
	ahead := p.packets.all[:len(p.packets.all)-len(behind)]
	if len(behind) > 0 {
		g.First = behind[0].at.Sub(resumed)
	}
	if len(behind) > 0 && len(ahead) > 0 {
		last := ahead[len(ahead)-1]
		g.Blackout, g.Lost = behind[0].at.Sub(last.at), behind[0].n-last.n-1
	}
	before := resumed.Add(-Around)
	g.Answers, g.Stream = longest(after(p.lines.all, before)), longest(after(p.words.all, before))
	return g
}

// after are the arrivals behind a time.
func after(all []arrival, t time.Time) []arrival {
	i := len(all)
	for i > 0 && all[i-1].at.After(t) {
		i--
	}
	return all[i:]
}

// longest is the longest time between two arrivals.
func longest(all []arrival) (out time.Duration) {
	for i := 1; i < len(all); i++ {
		out = max(out, all[i].at.Sub(all[i-1].at))
	}
	return out
}
