// SPDX-License-Identifier: Apache-2.0

package path

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/netns"
)

// Pair is the client and the server of a way, each a process in its pod's namespace.
type Pair struct {
	client, server *subprocess.Process
	to             netip.AddrPort
}

// StartPair starts a client in from and a server in to, whose address is addr; self is the program weft-bench.
func StartPair(self string, from, to *netns.NS, addr netip.Addr) (*Pair, error) {
	return StartPairOn(self, from, to, addr, min(1, runtime.NumCPU()-1))
}

// StartPairOn pins the server to a CPU; the client is pinned to the first one.
func StartPairOn(self string, from, to *netns.NS, addr netip.Addr, server int) (*Pair, error) {
	p := &Pair{to: netip.AddrPortFrom(addr, port)}
	var err error
	if p.client, err = subprocess.Start(from, 0, self, "part", "end"); err != nil {
		return nil, err
	}
	if p.server, err = subprocess.Start(to, server, self, "part", "end"); err != nil {
		p.client.Stop()
		return nil, err
	}
	return p, nil
}

// Once runs one test and returns its rate per second.
func (p *Pair) Once(test string, span time.Duration) (float64, error) {
	counted, err := p.once(test, span)
	if err != nil {
		return 0, err
	}
	return counted.Count / counted.Seconds, nil
}

// CPUTime returns the CPU time of client and server until now.
func (p *Pair) CPUTime() (time.Duration, error) {
	client, err := subprocess.CPUTime(p.client.PID())
	if err != nil {
		return 0, err
	}
	server, err := subprocess.CPUTime(p.server.PID())
	return client + server, err
}

// Count is like Once, and returns the number of the test's units instead of their rate.
func (p *Pair) Count(test string, span time.Duration) (count, rate float64, err error) {
	counted, err := p.once(test, span)
	if err != nil {
		return 0, 0, err
	}
	return counted.Count, counted.Count / counted.Seconds, nil
}

// Typical is like Once, but for requests and connections returns the rate computed from the median duration.
func (p *Pair) Typical(test string, span time.Duration) (float64, error) {
	counted, err := p.once(test, span)
	switch {
	case err != nil:
		return 0, err
	case counted.Typical > 0:
		return 1 / counted.Typical, nil
	}
	return counted.Count / counted.Seconds, nil
}

func (p *Pair) once(test string, span time.Duration) (outcome, error) {
	o := order{Test: test, To: p.to, Millis: int(span / time.Millisecond), Serve: true}
	var ready, requested, served outcome
	if err := exchange(p.server, o, &ready); err != nil {
		return outcome{}, err
	}
	o.Serve = false
	if err := exchange(p.client, o, &requested); err != nil {
		return outcome{}, err
	}
	if err := p.server.Receive(&served); err != nil {
		return outcome{}, err
	}
	if served.Error != "" {
		return outcome{}, fmt.Errorf("server: %s", served.Error)
	}
	counted := requested
	if test == TestPackets || test == TestStream {
		counted = served
	}
	if counted.Count == 0 || counted.Seconds == 0 {
		return outcome{}, errors.New("no packets arrived")
	}
	return counted, nil
}

// Close kills both processes: they have no state, and may wait for each other.
func (p *Pair) Close() {
	p.client.Kill()
	p.server.Kill()
	p.client.Stop()
	p.server.Stop()
}

func exchange(p *subprocess.Process, o order, result *outcome) error {
	if err := p.Send(o); err != nil {
		return err
	}
	if err := p.Receive(result); err != nil {
		return err
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	return nil
}
