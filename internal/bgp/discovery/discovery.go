// SPDX-License-Identifier: Apache-2.0

// Package discovery finds the router on each of some links, and announces this node there as one, by router
// advertisements (RFC 4861). They have the lifetime 0: no host makes the node its default router because of them.
//
// A link of two routers needs no addresses for BGP then: each finds the link-local address of the other.
package discovery

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/notify"
)

const (
	// inspect is how often each link is inspected: one that has failed must not be used for long.
	inspect = 200 * time.Millisecond
	// search is the interval of messages on a link where no router has been found, announce that on others.
	search, announce = time.Second, 10 * time.Second
	// forget is after how long without a message a second router of a link is reported no more.
	forget = 10 * time.Minute
)

// Links are the links on which routers are searched. Its methods may be called concurrently.
type Links struct {
	log     *slog.Logger
	now     func() time.Time
	changed notify.Chan

	mu    sync.Mutex
	sock  *socket // nil without links
	links map[string]*link
	err   error // why there is no socket
}

// link is what is known of a link.
type link struct {
	index int // 0: the link does not exist
	mac   net.HardwareAddr
	err   error // why nothing is sent
	// routers are those that were heard, and when last; newest is the one that was heard last.
	routers map[netip.Addr]time.Time
	newest  netip.Addr
	sent    time.Time
}

// New returns Links without a link.
func New(log *slog.Logger, now func() time.Time) *Links {
	return &Links{log: log, now: now, changed: notify.New(), links: map[string]*link{}}
}

// Changed receives a token when Router may return something else.
func (l *Links) Changed() <-chan struct{} { return l.changed }

// Set sets the names of the links. What is known of others is forgotten.
func (l *Links) Set(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.links, func(name string, _ *link) bool { return !slices.Contains(names, name) })
	for _, name := range names {
		if l.links[name] == nil {
			l.links[name] = &link{routers: map[netip.Addr]time.Time{}}
		}
	}
	if l.sock == nil && len(names) > 0 {
		l.openLocked()
	}
	if l.sock == nil {
		return
	}
	if len(names) == 0 {
		l.sock.close()
		l.sock = nil
		return
	}
	l.sendLocked()
}

// openLocked opens the socket, and starts what uses it until it is closed.
func (l *Links) openLocked() {
	var sock *socket
	if sock, l.err = openSocket(); l.err != nil {
		return
	}
	l.sock = sock
	go l.receive(sock)
	go func() {
		for {
			select {
			case <-sock.closed:
				return
			case <-time.After(inspect):
				l.mu.Lock()
				if l.sock == sock {
					l.sendLocked()
				}
				l.mu.Unlock()
			}
		}
	}()
}

// Router returns the link-local address of the router on a link, with the link's name as its zone, or why there is none.
// If several are heard, the error names them, and the one in use is returned, or else the one that was heard last: no
// other host of the link takes the place of a router that works.
func (l *Links) Router(name string, used netip.Addr) (netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.links[name]
	switch {
	case l.err != nil:
		return netip.Addr{}, l.err
	case k == nil:
		return netip.Addr{}, fmt.Errorf("interface %s is not searched", name)
	case k.err != nil:
		return netip.Addr{}, k.err
	case !k.newest.IsValid():
		return netip.Addr{}, fmt.Errorf("no router is heard on interface %s: have the other end send router advertisements",
			name)
	}
	router := k.newest
	if _, known := k.routers[used]; known {
		router = used
	}
	maps.DeleteFunc(k.routers, func(a netip.Addr, at time.Time) bool { return a != router && l.now().Sub(at) > forget })
	if len(k.routers) > 1 {
		all := slices.SortedFunc(maps.Keys(k.routers), netip.Addr.Compare)
		return router, fmt.Errorf("interface %s has the routers %v: use a link to one router, or write spec.peerIP", name, all)
	}
	return router, nil
}

// Recheck reports that a router may be in use no more.
func (l *Links) Recheck() { l.changed.Notify() }

// sendLocked sends what is due on each link, and inspects whether it exists.
func (l *Links) sendLocked() {
	for name, k := range l.links {
		index, up, err := l.sock.inspect(name)
		switch {
		case index == 0 && err == nil:
			err = fmt.Errorf("interface %s does not exist on this node: correct spec.interface, or select other nodes by "+
				"spec.nodeSelector", name)
		case err == nil && !up:
			err = fmt.Errorf("interface %s is down: set up both ends of its link", name)
		}
		if index != k.index { // another link: its router may be another one
			*k = link{index: index, routers: map[netip.Addr]time.Time{}, err: k.err}
			if ifi, err := net.InterfaceByIndex(index); err == nil {
				k.mac = ifi.HardwareAddr
			}
			l.changed.Notify()
		}
		if (err == nil) != (k.err == nil) || err != nil && err.Error() != k.err.Error() {
			k.err = err
			l.changed.Notify()
		}
		if err != nil {
			continue
		}
		since := l.now().Sub(k.sent)
		if !k.newest.IsValid() && since >= search {
			l.send(k, routerSolicitation, allRouters(), make([]byte, 4))
		}
		if !k.newest.IsValid() && since >= search || since >= announce {
			k.sent = l.now()
			l.advertise(k)
		}
	}
}

func (l *Links) advertise(k *link) {
	l.send(k, routerAdvertisement, allNodes(), make([]byte, 12)) // hop limit, flags, lifetime and timers are unspecified
}

// send sends a message. A link that is not ready yet, as its address is still tested, is tried again.
func (l *Links) send(k *link, kind byte, to netip.Addr, body []byte) {
	if err := l.sock.send(k.index, k.mac, kind, to, body); err != nil {
		l.log.Debug("message to routers could not be sent", "index", k.index, "err", err)
	}
}

// receive takes the messages of other routers until the socket is closed.
func (l *Links) receive(sock *socket) {
	for {
		m, err := sock.receive()
		if err != nil {
			return
		}
		l.mu.Lock()
		if l.sock == sock {
			l.takeLocked(m)
		}
		l.mu.Unlock()
	}
}

// takeLocked takes a message: a new router, and one that asks for routers, get an answer at once.
func (l *Links) takeLocked(m message) {
	for name, k := range l.links {
		if k.index != m.index || k.index == 0 {
			continue
		}
		if m.kind == routerSolicitation {
			l.advertise(k)
			return
		}
		router := m.from.WithZone(name)
		if _, known := k.routers[router]; !known {
			l.log.Info("router is found", "interface", name, "address", router)
			l.advertise(k)
		}
		if k.routers[router] = l.now(); k.newest != router {
			k.newest = router
			l.changed.Notify()
		}
	}
}
