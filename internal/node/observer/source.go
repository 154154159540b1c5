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
	events     *conntrack.Listener // nil: closed
	packets    bool                // dropped and denied packets are observed, by the following
	stopDenied func()
	drops      *drops.Session // nil: the kernel does not report them
	// notes are what is not observed.
	notes []string
}

// dropReasons are the kernel's reasons of drops that are flows' ends. Others are normal, such as a closed socket's, or of
// frames that are no IP packets.
func dropReasons() []string {
	return []string{
		netfilterDrop, "IP_RPFILTER", "IP_INNOROUTES", "IP_OUTNOROUTES", "IP_INADDRERRORS", "IP_INVALID_SOURCE",
		"IP_LOCAL_SOURCE", "NEIGH_FAILED", "NEIGH_QUEUEFULL", "NEIGH_CREATEFAIL", "PKT_TOO_BIG", "TCP_CSUM", "UDP_CSUM",
		"ICMP_CSUM", "IP_CSUM", "SOCKET_RCVBUFF", "VXLAN_VNI_NOT_FOUND", "VXLAN_NO_REMOTE", "NO_TX_TARGET", "QDISC_DROP",
		"FULL_RING", "IPV6DISABLED", "TC_INGRESS", "TC_EGRESS",
	}
}

// netfilterDrop is the reason of packets that a packet filter drops, also weft's policies.
const netfilterDrop = "NETFILTER_DROP"

// callbacks are called from several goroutines, until close.
type callbacks struct {
	event   func(conntrack.Event)
	denied  func(policy.DeniedPacket)
	dropped func(drops.Drop)
}

// open opens what is needed and not open.
func (s *source) open(events, packets bool) (err error) {
	if events && s.events == nil {
		if s.events, err = conntrack.Listen(context.Background(), s.cfg.NS, s.to.event); err != nil {
			s.events = nil
			return err
		}
	}
	if packets && !s.packets {
		s.openPackets()
	}
	return nil
}

// openPackets observes dropped packets by the kernel's drops, or else denied ones by the log of policies.
func (s *source) openPackets() {
	s.packets, s.stopDenied, s.notes = true, func() {}, nil
	if s.cfg.Policies == nil {
		s.notes = append(s.notes, "policies are not observed: this agent enforces none")
	}
	var err error
	if s.drops, err = s.cfg.Drops(s.to.dropped); err == nil {
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
	return drops.Stream(drops.Filter{Reasons: dropReasons()}, each)
}

// lost returns how many events were lost since the sockets were opened. After an error they are not known.
func (s *source) lost() (sum flow.Lost) {
	var err error
	if s.events != nil {
		if sum.New, err = s.events.Lost(conntrack.New); err == nil {
			sum.End, err = s.events.Lost(conntrack.End)
		}
	}
	if err == nil && s.drops != nil {
		sum.Drops, err = s.drops.Missed()
	}
	if err != nil {
		s.cfg.Log.Warn("lost flows cannot be counted", "err", err)
	}
	return sum
}
