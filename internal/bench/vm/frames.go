// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// frames has the card send and take frames: how many microseconds one takes, and how many arrive in a second. Some may be lost,
// not many.
func (w *world) frames(test string, span time.Duration) (each, rate float64, err error) {
	o := order{From: fdTap, Frame: w.sent, Millis: int(span / time.Millisecond)}
	ns, at := w.peer, "eth0"
	switch test {
	case TestIn:
		o.From, o.Frame = fdNode, w.handed
	case TestInPeer:
		o.From, o.Frame = fdPeer, w.taken
	case TestOut:
		ns, at = w.node, machineLink
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
	if o.From == fdTap {
		after, err := arrived(ns, at)
		if err != nil {
			return 0, 0, err
		}
		result.Taken = int(after - before)
	}
	if result.Taken < result.Frames*9/10 {
		return 0, 0, fmt.Errorf("of %d frames %d arrived", result.Frames, result.Taken)
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
