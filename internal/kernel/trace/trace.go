// SPDX-License-Identifier: Apache-2.0

// Package trace follows single packets through the packet filters of a namespace (nftables' meta nftrace), and sends
// packets to follow. It knows no pods. Without a Session there is no rule and no socket.
package trace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/netns"
)

// Seen is a step of a packet: a rule that matched, or the policy of a chain.
type Seen struct {
	// Time is when the event was received.
	Time time.Time `json:"time"`
	// Packet is the kernel's number of the packet in this namespace; a packet that is encapsulated has another one.
	Packet uint32 `json:"packet"`
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	// Handle is the rule's; 0 for a policy, or the end of a chain.
	Handle uint64 `json:"handle,omitempty"`
	// Verdict is accept, drop, continue, return, jump CHAIN …, or Arrived.
	Verdict string `json:"verdict"`
	// Policy: the verdict is the policy of a base chain.
	Policy bool   `json:"policy,omitempty"`
	In     string `json:"in,omitempty"`
	Out    string `json:"out,omitempty"`
	// From and To are the packet's addresses at this step, with its ports.
	From netip.AddrPort `json:"from,omitzero"`
	To   netip.AddrPort `json:"to,omitzero"`
	// Reset: it is a TCP segment with the flag RST.
	Reset bool `json:"reset,omitempty"`
	// Key distinguishes the packet from others between the same ends, at all places; 0: it does not.
	Key uint64 `json:"key,omitempty"`
}

// Arrived is the verdict of a step that only reports that the packet came to a hook (Chain), before all rules.
const Arrived = "arrived"

// Session is a trace in one namespace.
type Session struct {
	filters  *nft.Conn
	listener *netlink.Listener

	mu   sync.Mutex
	seen []Seen
	lost bool
}

// drainTime is how long Close waits for steps that are to be read.
const drainTime = 2 * time.Second

// most is how many steps a session keeps: a packet has some tens.
const most = 10000

// Start traces the packets that one of the matches selects, until Close.
func Start(ctx context.Context, ns *netns.NS, matches []nft.Match) (*Session, error) {
	s := &Session{}
	var err error
	if s.filters, err = nft.Dial(ns); err != nil {
		return nil, err
	}
	s.listener, err = netlink.Listen(ctx, ns, netlink.Subscription{
		Protocol: unix.NETLINK_NETFILTER, Groups: netlink.Group(unix.NFNLGRP_NFTRACE), Size: 16 << 10, Buffer: 1 << 20,
	}, func(l *netlink.Listener, d netlink.Datagram) { s.receive(l, d) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trace: %w", err), s.filters.Close())
	}
	if err := s.filters.Trace(ctx, matches); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the trace: the kernel deletes its rules. Seen then has all steps, also those that a busy host had not read.
func (s *Session) Close() error {
	err := s.filters.Close()
	for idle, until := 0, time.Now().Add(drainTime); idle < 2 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		if idle++; !s.listener.Idle() {
			idle = 0
		}
	}
	s.listener.Close()
	<-s.listener.Done()
	return err
}

// Seen returns the steps so far. lost means that some are missing.
func (s *Session) Seen() (seen []Seen, lost bool) {
	s.mu.Lock()
	seen, lost = append([]Seen(nil), s.seen...), s.lost
	s.mu.Unlock()
	fillHeaders(seen)
	return seen, lost
}

// fillHeaders copies to each step the headers of its packet: the kernel reports them with the first step of each hook only. Its
// number of a packet is derived from the packet's memory, which a later packet may have.
func fillHeaders(steps []Seen) {
	latest := map[uint32]Seen{}
	for i := range steps {
		e := &steps[i]
		if e.From.IsValid() {
			latest[e.Packet] = *e
		} else if k, has := latest[e.Packet]; has {
			e.From, e.To, e.Key = k.From, k.To, k.Key
		}
	}
}

func (s *Session) receive(l *netlink.Listener, d netlink.Datagram) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Lost {
		s.lost = true
		return
	}
	netlink.Messages(d.Data, func(a netlink.Answer) {
		if a.Kind != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
			return
		}
		family, body, ok := a.Netfilter()
		switch {
		case !ok:
		case len(s.seen) >= most:
			s.lost = true
		default:
			step, rule := decode(family, body, l.LinkName)
			step.Time = now
			if step.Table == nft.TraceTable {
				if !rule && (step.Chain != nft.TraceLeft || !step.Policy) {
					return
				}
				step.Table, step.Handle, step.Verdict, step.Policy = "", 0, Arrived, false
				if n := len(s.seen); n > 0 && s.seen[n-1].begins(step) {
					return // the kernel reports a rule that begins a trace twice
				}
			}
			s.seen = append(s.seen, step)
		}
	})
}

// begins reports whether a step is the same beginning at a hook as another.
func (s *Seen) begins(other Seen) bool {
	return s.Verdict == Arrived && s.Packet == other.Packet && s.Chain == other.Chain
}

// decode decodes NFT_MSG_TRACE; rule reports that the step is a rule.
func decode(family byte, body []byte, name func(int) string) (out Seen, rule bool) {
	out = Seen{Family: lang.FamilyName(family)}
	kind := uint32(0)
	var network, transport, verdict []byte
	for attr, data := range netlink.Attrs(body) {
		switch attr {
		case unix.NFTA_TRACE_TABLE:
			out.Table = netlink.String(data)
		case unix.NFTA_TRACE_CHAIN:
			out.Chain = netlink.String(data)
		case unix.NFTA_TRACE_RULE_HANDLE:
			out.Handle = netlink.BE64(data)
		case unix.NFTA_TRACE_TYPE:
			kind = netlink.BE32(data)
		case unix.NFTA_TRACE_VERDICT:
			verdict = data
		case unix.NFTA_TRACE_ID:
			out.Packet = netlink.BE32(data)
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = data
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = data
		case unix.NFTA_TRACE_IIF:
			out.In = name(int(netlink.BE32(data)))
		case unix.NFTA_TRACE_OIF:
			out.Out = name(int(netlink.BE32(data)))
		case unix.NFTA_TRACE_POLICY:
			out.Verdict = lang.Verdict{Code: int32(netlink.BE32(data))}.String()
		}
	}
	out.Policy = kind == unix.NFT_TRACETYPE_POLICY
	if !out.Policy {
		out.Verdict = lang.Verdict{
			Code:  int32(netlink.BE32(netlink.Find(verdict, unix.NFTA_VERDICT_CODE))),
			Chain: netlink.String(netlink.Find(verdict, unix.NFTA_VERDICT_CHAIN)),
		}.String()
	}
	out.addresses(network, transport)
	return out, kind == unix.NFT_TRACETYPE_RULE
}

// addresses decodes the packet's headers.
func (s *Seen) addresses(network, transport []byte) {
	var src, dst []byte
	var protocol byte
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		src, dst, protocol = network[12:16], network[16:20], network[9]
	case len(network) >= 40 && network[0]>>4 == 6:
		src, dst, protocol = network[8:24], network[24:40], network[6]
	default:
		return
	}
	var sport, dport uint16
	if len(transport) >= 4 {
		sport, dport = netlink.BE16(transport), netlink.BE16(transport[2:])
	}
	s.Key = key(network, protocol, transport)
	const flags, rst = 13, 4
	s.Reset = protocol == unix.IPPROTO_TCP && len(transport) > flags && transport[flags]&rst != 0
	from, _ := netip.AddrFromSlice(src)
	to, _ := netip.AddrFromSlice(dst)
	s.From, s.To = netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport)
}
