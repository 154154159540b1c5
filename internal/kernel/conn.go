// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/firewalld"
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

const (
	// Group is the link group of links that wait for the reaper: "weft" in ASCII.
	Group = 0x77656674
	// Protocol is weft's own route protocol number (rtnetlink(7), rtm_protocol): "w".
	Protocol = link.Protocol
	// SharedMark begins the ifalias of links that weft made for several owners.
	SharedMark = "weft:shared"
)

// Conn is the open sockets in one network namespace. It is safe for concurrent use.
type Conn struct {
	ns   *netns.NS
	rtnl *rtnl.Socket
	conf *sysctl.Files
	// Root is the directory below which the machine's files are, /sys and /etc; "" is "/". It is set before the Conn is used.
	Root string
	// index chooses the index of a new link.
	index   func() int
	tracked effect.Tracker

	mu        sync.Mutex
	nft       *nft.Conn
	firewalld *firewalld.Client
}

// Dial opens the sockets in ns; nil is the process's own namespace. ns must stay open as long as the Conn.
func Dial(ns *netns.NS) (*Conn, error) {
	s, err := rtnl.Open(ns)
	if err != nil {
		return nil, err
	}
	return &Conn{ns: ns, rtnl: s, conf: sysctl.New(ns), index: newIndex}, nil
}

// Close closes the sockets.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conf.Close()
	err := errors.Join(c.rtnl.Close(), c.tracked.Close())
	if c.nft != nil {
		err = errors.Join(err, c.nft.Close())
	}
	if c.firewalld != nil {
		err = errors.Join(err, c.firewalld.Close())
	}
	return err
}

// Writes counts the rtnetlink requests that changed or tried to change something.
func (c *Conn) Writes() int { return c.rtnl.Writes() }

// Messages counts the rtnetlink messages in both directions.
func (c *Conn) Messages() int { return c.rtnl.Messages() }

// tables is the nft socket, opened when it is first needed: most namespaces never do.
func (c *Conn) tables() (*nft.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nft == nil {
		n, err := nft.Dial(c.ns)
		if err != nil {
			return nil, err
		}
		c.nft = n
	}
	return c.nft, nil
}

// linksByName reads links in one question; missing ones are left out.
func (c *Conn) linksByName(ctx context.Context, names []string) (map[string]link.Found, error) {
	batch := make([]*rtnl.Message, len(names))
	for i, name := range names {
		batch[i] = link.Get(name)
	}
	out := make(map[string]link.Found, len(names))
	err := c.rtnl.Ask(ctx, batch, func(i int, body []byte) {
		// By the name asked for: the kernel also finds links by their alternative names.
		if f, ok := link.Decode(body); ok && f.Name == names[i] {
			out[f.Name] = f
		}
	})
	return out, err
}

func (c *Conn) linkByIndex(ctx context.Context, index int) (found link.Found, ok bool, err error) {
	err = c.rtnl.Ask(ctx, []*rtnl.Message{link.GetIndex(index)}, func(_ int, body []byte) {
		found, ok = link.Decode(body)
	})
	return found, ok, err
}

// whole lets a question about everything be answered while things come and go: on a node with hundreds of pods they always
// do. Who asks for everything looks again later. A question about one link must be answered exactly.
func whole(m *rtnl.Message, index int) *rtnl.Message {
	m.Loose = index == 0
	return m
}

// links reads every link, by index; with a master those enslaved to it.
func (c *Conn) links(ctx context.Context, master int) (map[int]link.Found, error) {
	out := map[int]link.Found{}
	err := c.rtnl.Dump(ctx, whole(link.List(master), master), func(body []byte) {
		if f, ok := link.Decode(body); ok && (master == 0 || f.MasterIndex == master) {
			out[f.Index] = f
		}
	})
	return out, err
}

func (c *Conn) addrs(ctx context.Context, index int) ([]link.FoundAddr, error) {
	var out []link.FoundAddr
	err := c.rtnl.Dump(ctx, whole(link.ListAddrs(index), index), func(body []byte) {
		if f, ok := link.DecodeAddr(body); ok && (index == 0 || f.Index == index) {
			out = append(out, f)
		}
	})
	return out, err
}

func (c *Conn) routes(ctx context.Context, family uint8, index int, table uint32) ([]link.FoundRoute, error) {
	var out []link.FoundRoute
	err := c.rtnl.Dump(ctx, whole(link.ListRoutes(family, index, table), index), func(body []byte) {
		whole, ok := link.DecodeRoute(body)
		if !ok || table != 0 && whole.Table != table {
			return
		}
		for _, f := range whole.ByLink() {
			if index == 0 || f.Index == index {
				out = append(out, f)
			}
		}
	})
	return out, err
}

func (c *Conn) neighs(ctx context.Context, proxy bool) ([]link.FoundNeigh, error) {
	var out []link.FoundNeigh
	err := c.rtnl.Dump(ctx, whole(link.ListNeighs(0, proxy), 0), func(body []byte) {
		if f, ok := link.DecodeNeigh(body); ok {
			out = append(out, f)
		}
	})
	return out, err
}

func (c *Conn) rules(ctx context.Context) ([]link.FoundRule, error) {
	var out []link.FoundRule
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := c.rtnl.Dump(ctx, link.ListRules(family), func(body []byte) {
			if f, ok := link.DecodeRule(body); ok {
				out = append(out, f)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Spaces are the two namespaces of a fragment. Pod and PodNS are nil when there is none, or when it is gone.
type Spaces struct {
	Host, Pod *Conn
	PodNS     *netns.NS
}

func (s Spaces) conn(name state.SpaceName) *Conn {
	if name == state.Pod {
		return s.Pod
	}
	return s.Host
}

// in names the namespace that an error is about.
func in(name state.SpaceName, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
