// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/node/policy"
)

// source are the sockets by which the node is observed, as far as they are needed.
type source struct {
	cfg        Config
	to         callbacks
	feed       conntrack.Source
	events     *conntrack.Listener // nil: closed
	states     bool                // its listener follows the states of connections
	fellBack   bool                // that events come by netlink has been logged
	packets    bool                // dropped and denied packets are observed, by the following
	stopDenied func()
	drops      *drops.Session // nil: the kernel does not report them
	// notes are what is not observed.
	notes []string
	// missed are what the open sockets have lost, which count from 0 when they are opened.
	missed struct{ new, update, end, drops counter }
	// uncounted reports that this is not known of one, which has been logged.
	uncounted bool
}

// counter adds up a count of which the kernel keeps 32 bits, and which begins again with each socket.
type counter struct {
	last uint32
	sum  uint64
}

func (c *counter) read(n uint64) {
	c.sum += uint64(uint32(n) - c.last)
	c.last = uint32(n)
}

// callbacks are called from several goroutines, until close.
type callbacks struct {
	events  func([]conntrack.Event)
	denied  func(policy.DeniedPacket)
	dropped func(drops.Drop)
}

// open opens what is needed and not open.
func (s *source) open(events, packets bool) (err error) {
	if s.stopped() {
		s.events.Close()
		s.events = nil
	}
	if events && s.events == nil {
		if s.events, err = s.feed.Listen(context.Background(), s.cfg.NS, s.to.events); err != nil {
			s.events = nil
			return err
		}
		s.states, s.missed.new.last, s.missed.update.last, s.missed.end.last = false, 0, 0, 0
		if why := s.events.Fallback(); why != nil && !s.fellBack {
			s.cfg.Log.Info("connections are observed by netlink, which costs them more than eBPF", "why", why)
			s.fellBack = true
		}
	}
	if packets && !s.packets {
		s.openPackets()
	}
	return nil
}

// followStates has the changes of connections' states reported, or not any more.
func (s *source) followStates(on bool) error {
	if s.events == nil || s.stopped() || s.states == on {
		return nil
	}
	if err := s.events.FollowStates(on); err != nil {
		return err
	}
	s.states = on
	return nil
}

// stopped reports whether events are not received any more, although they are needed.
func (s *source) stopped() bool {
	if s.events == nil {
		return false
	}
	select {
	case <-s.events.Done():
		return true
	default:
		return false
	}
}

// openPackets observes dropped packets by the kernel's drops, or else denied ones by the log of policies.
func (s *source) openPackets() {
	s.packets, s.stopDenied, s.notes = true, func() {}, nil
	if s.cfg.Policies == nil {
		s.notes = append(s.notes, "policies are not observed: this agent enforces none")
	}
	var err error
	if s.drops, err = s.cfg.Drops(s.to.dropped); err == nil {
		s.missed.drops.last = 0
		return
	}
	s.drops = nil
	why := fmt.Sprintf("dropped packets are not observed: %v", err)
	if logged := s.cfg.Policies != nil && s.cfg.Policies.LogsDenied(); logged {
		s.stopDenied = s.cfg.Policies.ObserveDenied(s.to.denied)
		why += "; of packets that policies deny, at most ten per second and policy are"
	} else if s.cfg.Policies != nil {
		why += "; set policy.log to denied to observe those that policies deny"
	}
	s.notes = append(s.notes, why)
}

// detach returns what closes what is not needed. It is called without the lock that the callbacks wait for.
func (s *source) detach(events, packets bool) (closers []func()) {
	if !events || !packets {
		_ = s.lost() // up to now
	}
	if !events && s.events != nil {
		closers, s.events = append(closers, s.events.Close), nil
	}
	if packets || !s.packets {
		return closers
	}
	closers = append(closers, s.stopDenied)
	if session := s.drops; session != nil {
		closers = append(closers, func() {
			if err := session.Close(); err != nil {
				s.cfg.Log.Warn("program that reports dropped packets", "err", err)
			}
		})
	}
	s.packets, s.drops = false, nil
	return closers
}

// streamDrops is the source of dropped packets.
func streamDrops(each func(drops.Drop)) (*drops.Session, error) {
	return drops.Stream(drops.Filter{Reasons: flow.DropReasons()}, each)
}

// lost returns how many events were lost since the agent began. What is not known is not among them.
func (s *source) lost() flow.Lost {
	var err error
	read := func(c *counter, f func() (uint64, error)) {
		n, failed := f()
		if failed != nil {
			err = failed
			return
		}
		c.read(n)
	}
	if s.events != nil {
		read(&s.missed.new, func() (uint64, error) { return s.events.Lost(conntrack.New) })
		read(&s.missed.update, func() (uint64, error) { return s.events.Lost(conntrack.Update) })
		read(&s.missed.end, func() (uint64, error) { return s.events.Lost(conntrack.End) })
	}
	if s.drops != nil {
		read(&s.missed.drops, s.drops.Missed)
	}
	if err != nil && !s.uncounted { // asked each second
		s.cfg.Log.Warn("lost flows cannot be counted", "err", err)
	}
	s.uncounted = err != nil
	return flow.Lost{
		New: s.missed.new.sum, Update: s.missed.update.sum, End: s.missed.end.sum, Drops: s.missed.drops.sum,
	}
}
