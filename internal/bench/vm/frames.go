// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// errLost is a measurement in which frames were lost: the kernel put so much off that a queue was full.
var errLost = errors.New("too few frames arrived")

// frames has the card send and take frames: how many microseconds one takes, and how many arrive in a second. Where
// many are lost it is no measurement, and taken again.
func (w *world) frames(test string, span time.Duration) (each, rate float64, err error) {
	for range attempts {
		if each, rate, err = w.framesOnce(test, span); !errors.Is(err, errLost) {
			break
		}
	}
	return each, rate, err
}

const attempts = 5

func (w *world) framesOnce(test string, span time.Duration) (each, rate float64, err error) {
	o := order{From: fdTap, Frame: w.sent, Millis: int(span / time.Millisecond)}
	ns, at := w.peer, "eth0"
	switch test {
	case TestIn:
		o.From, o.Frame = fdNode, w.handed
	case TestInPeer:
		o.From, o.Frame = fdPeer, w.taken
	case TestOut:
		ns, at = w.node, w.wire
		s, err := sink(ns, at)
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = s.Close() }()
	}
	before, err := arrived(ns, at)
	if err != nil {
		return 0, 0, err
	}
	if err := w.card.Tell(o); err != nil {
		return 0, 0, err
	}
	var result outcome
	if err := w.card.Hear(&result); err != nil {
		return 0, 0, err
	}
	if result.Error != "" {
		return 0, 0, errors.New(result.Error)
	}
	for range patience {
		if o.From != fdTap || result.Taken >= result.Frames {
			break
		}
		after, err := arrived(ns, at)
		if err != nil {
			return 0, 0, err
		}
		if result.Taken = int(after - before); result.Taken < result.Frames {
			time.Sleep(time.Millisecond)
		}
	}
	if result.Taken < result.Frames*9/10 {
		return 0, 0, fmt.Errorf("%w: %d of %d", errLost, result.Taken, result.Frames)
	}
	return result.Each, float64(result.Taken) / result.Seconds, nil
}

// arrived is how many frames a link has taken in.
func arrived(ns *netns.NS, name string) (uint64, error) {
	l, err := linkOf(ns, name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Statistics.RxPackets, nil
}
