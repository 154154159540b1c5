// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// errLost is the error if frames were lost because the kernel deferred work until a queue was full.
var errLost = errors.New("too few frames arrived")

// frames measures the microseconds per frame and the frames that arrive per second. If many frames are lost, it
// measures again.
func (w *world) frames(test string, span time.Duration) (each, rate float64, err error) {
	for i := range attempts {
		if i > 0 {
			time.Sleep(20 * time.Millisecond) // what keeps the processor busy may end
		}
		if each, rate, err = w.framesOnce(test, span); !errors.Is(err, errLost) {
			break
		}
	}
	return each, rate, err
}

const attempts = 50

func (w *world) framesOnce(test string, span time.Duration) (each, rate float64, err error) {
	o := order{From: fdTap, Frame: w.fromVM, Millis: int(span / time.Millisecond)}
	ns, link := w.peer, "eth0"
	switch test {
	case TestIn:
		o.From, o.Frame = fdNode, w.fromNode
	case TestInPeer:
		o.From, o.Frame = fdPeer, w.fromPeer
	case TestOut:
		ns, link = w.node, w.hostLink
		s, err := sink(ns, link)
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = s.Close() }()
	}
	before, err := rxPackets(ns, link)
	if err != nil {
		return 0, 0, err
	}
	if err := w.nic.Send(o); err != nil {
		return 0, 0, err
	}
	var result outcome
	if err := w.nic.Receive(&result); err != nil {
		return 0, 0, err
	}
	if result.Error != "" {
		return 0, 0, errors.New(result.Error)
	}
	for range drainTime {
		if o.From != fdTap || result.Received >= result.Frames {
			break
		}
		after, err := rxPackets(ns, link)
		if err != nil {
			return 0, 0, err
		}
		if result.Received = int(after - before); result.Received < result.Frames {
			time.Sleep(time.Millisecond)
		}
	}
	if result.Received < result.Frames*9/10 {
		return 0, 0, fmt.Errorf("%w: %d of %d", errLost, result.Received, result.Frames)
	}
	return result.Each, float64(result.Received) / result.Seconds, nil
}

// rxPackets returns the number of frames that a link has received.
func rxPackets(ns *netns.NS, name string) (uint64, error) {
	l, err := linkOf(ns, name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Statistics.RxPackets, nil
}
