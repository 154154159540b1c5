// SPDX-License-Identifier: Apache-2.0

package path

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/weft-net/weft/internal/bench/part"
	"github.com/weft-net/weft/internal/netns"
)

// Ends are the two ends of a way, each a process in its pod's namespace.
type Ends struct {
	client, server *part.Process
	to             netip.AddrPort
}

// Join starts the two ends; self is weft. The server's address is to.
func Join(self string, from, to *netns.NS, addr netip.Addr) (*Ends, error) {
	return JoinOn(self, from, to, addr, min(1, runtime.NumCPU()-1))
}

// JoinOn has the server on a processor; the client is on the first one.
func JoinOn(self string, from, to *netns.NS, addr netip.Addr, server int) (*Ends, error) {
	e := &Ends{to: netip.AddrPortFrom(addr, port)}
	var err error
	if e.client, err = part.Start(from, 0, self, "part", "end"); err != nil {
		return nil, err
	}
	if e.server, err = part.Start(to, server, self, "part", "end"); err != nil {
		e.client.Stop()
		return nil, err
	}
	return e, nil
}

// Once takes one test: what was done per second.
func (e *Ends) Once(test string, span time.Duration) (float64, error) {
	counted, err := e.once(test, span)
	if err != nil {
		return 0, err
	}
	return counted.Count / counted.Seconds, nil
}

// Typical is Once, but for requests and connections what would be done in a second if each took as long as the typical
// one.
func (e *Ends) Typical(test string, span time.Duration) (float64, error) {
	counted, err := e.once(test, span)
	switch {
	case err != nil:
		return 0, err
	case counted.Typical > 0:
		return 1 / counted.Typical, nil
	}
	return counted.Count / counted.Seconds, nil
}

func (e *Ends) once(test string, span time.Duration) (outcome, error) {
	o := order{Test: test, To: e.to, Millis: int(span / time.Millisecond), Serve: true}
	var ready, asked, served outcome
	if err := exchange(e.server, o, &ready); err != nil {
		return outcome{}, err
	}
	o.Serve = false
	if err := exchange(e.client, o, &asked); err != nil {
		return outcome{}, err
	}
	if err := e.server.Hear(&served); err != nil {
		return outcome{}, err
	}
	if served.Error != "" {
		return outcome{}, fmt.Errorf("server: %s", served.Error)
	}
	counted := asked
	if test == TestPackets || test == TestStream {
		counted = served
	}
	if counted.Count == 0 || counted.Seconds == 0 {
		return outcome{}, errors.New("nothing arrived")
	}
	return counted, nil
}

// Close ends both: they hold nothing, and may wait for each other.
func (e *Ends) Close() {
	e.client.Kill()
	e.server.Kill()
	e.client.Stop()
	e.server.Stop()
}

func exchange(p *part.Process, o order, result *outcome) error {
	if err := p.Tell(o); err != nil {
		return err
	}
	if err := p.Hear(result); err != nil {
		return err
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	return nil
}
