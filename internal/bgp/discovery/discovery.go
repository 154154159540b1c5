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
	// mostRouters is how many routers of a link are remembered: any host of it can send advertisements, of any address.
	mostRouters = 16
	// hold is how long a router is tried at least, before another one that is heard.
	hold = 5 * time.Second
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
	// routers are those that were heard, and when last; chosen is the one to try, since a time.
	routers map[netip.Addr]time.Time
	chosen  netip.Addr
	since   time.Time
	sent    time.Time
	// asked: an advertisement is due, as another router has asked for it, or was not known.
	asked bool
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
	switch {
	case len(names) > 0:
		l.openLocked()
	case l.sock != nil:
		l.sock.close()
		l.sock = nil
	}
}

// Retry opens the socket if that has failed.
func (l *Links) Retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.links) > 0 && l.sock == nil {
		l.openLocked()
		l.changed.Notify()
	}
}

// openLocked opens the socket, if there is none, starts what uses it until it is closed, and sends what is due.
func (l *Links) openLocked() {
	if l.sock != nil {
		l.sendLocked()
		return
	}
	var sock *socket
	if sock, l.err = openSocket(); l.err != nil {
		return
	}
	l.sock = sock
	l.sendLocked()
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
// If several are heard, the error names them, and the one in use is returned, or else the one to try: no other host of
// the link takes the place of a router that works.
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
	case !k.chosen.IsValid():
		return netip.Addr{}, fmt.Errorf("no router is heard on interface %s: have the other end send router advertisements",
			name)
	}
	router := k.chosen
	if _, known := k.routers[used]; known {
		router = used
	}
	k.forget(l.now(), router)
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
			renewZones()
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
		searching := !k.chosen.IsValid() && since >= search
		if searching {
			l.send(k, routerSolicitation, allRouters(), make([]byte, 4))
		}
		if searching || since >= announce || k.asked {
			k.sent, k.asked = l.now(), false
			// Hop limit, flags, lifetime and timers are unspecified.
			l.send(k, routerAdvertisement, allNodes(), make([]byte, 12))
		}
	}
}

// renewZones has the package net read the indexes of links again. It reads them once a minute only, so that for as long
// connections to a link that was deleted and made again failed. It reads them at once for a name that it does not know,
// and no link's name has a slash. Nothing is sent: the kernel refuses the address without a link.
func renewZones() {
	if c, err := net.DialUDP("udp6", nil, &net.UDPAddr{IP: net.ParseIP("fe80::1"), Port: 9, Zone: "/"}); err == nil {
		_ = c.Close()
	}
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

// takeLocked takes a message. A new router, and one that asks for routers, get an answer when links are next inspected, and
// not each its own: messages cost their sender nothing.
func (l *Links) takeLocked(m message) {
	for name, k := range l.links {
		if k.index != m.index || k.index == 0 {
			continue
		}
		if m.kind == routerSolicitation {
			k.asked = true
			return
		}
		router, now := m.from.WithZone(name), l.now()
		if _, known := k.routers[router]; !known {
			k.forget(now, k.chosen)
			if len(k.routers) >= mostRouters {
				return
			}
			l.log.Info("router is found", "interface", name, "address", router)
			k.asked = true
		}
		k.routers[router] = now
		if k.chosen != router && now.Sub(k.since) >= hold {
			k.chosen, k.since = router, now
			l.changed.Notify()
		}
	}
}

// forget forgets the routers that have not been heard for long, but the one to try and another one.
func (k *link) forget(now time.Time, kept netip.Addr) {
	maps.DeleteFunc(k.routers, func(a netip.Addr, at time.Time) bool {
		return a != k.chosen && a != kept && now.Sub(at) > forget
	})
}
