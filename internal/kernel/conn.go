// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/interim/rtnl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Errors that callers branch on.
var (
	// ErrForeign is wrapped when something of a wanted name exists and is not weft's or of another kind.
	ErrForeign = errors.New("exists and is not weft's")
	// ErrMissing is wrapped when a fragment needs a link that is not there and that it does not make.
	ErrMissing = errors.New("does not exist")
)

// Group is the link group of links that wait for the reaper: "weft" in ASCII.
const Group = 0x77656674

// Protocol is weft's own route protocol number (rtnetlink(7)).
const Protocol = link.Protocol

// SharedMark begins the ifalias of links that weft made for several owners.
const SharedMark = "weft:shared"

// Conn is the open sockets in one network namespace. It is safe for concurrent use.
type Conn struct {
	ns   *netns.NS
	rtnl *rtnl.Socket

	mu  sync.Mutex
	nft *nft.Conn
}

// Dial opens the sockets in ns; nil is the process's own namespace. ns must stay open as long as the Conn.
func Dial(ns *netns.NS) (*Conn, error) {
	s, err := rtnl.Open(ns)
	if err != nil {
		return nil, err
	}
	return &Conn{ns: ns, rtnl: s}, nil
}

// Close closes the sockets.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.rtnl.Close()
	if c.nft != nil {
		err = errors.Join(err, c.nft.Close())
	}
	return err
}

// Writes counts the rtnetlink requests that changed or tried to change something.
func (c *Conn) Writes() int { return c.rtnl.Writes() }

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

// send sends a batch and joins all refusals but those of forgiven numbers.
func (c *Conn) send(ctx context.Context, batch []*rtnl.Message, forgive ...unix.Errno) error {
	if err := ctx.Err(); err != nil || len(batch) == 0 {
		return err
	}
	refused, err := c.rtnl.Send(batch)
	errs := []error{err}
	for _, r := range refused {
		if !forgiven(r.Errno, forgive) {
			errs = append(errs, r)
		}
	}
	return errors.Join(errs...)
}

func forgiven(errno unix.Errno, list []unix.Errno) bool {
	for _, f := range list {
		if f == errno {
			return true
		}
	}
	return false
}

// linksByName reads links; missing ones are left out.
func (c *Conn) linksByName(names []string) (map[string]link.Found, error) {
	batch := make([]*rtnl.Message, len(names))
	for i, name := range names {
		batch[i] = link.Get(name)
	}
	return c.getLinks(batch)
}

func (c *Conn) getLinks(batch []*rtnl.Message) (map[string]link.Found, error) {
	out := make(map[string]link.Found, len(batch))
	var errs []error
	err := c.rtnl.Get(batch, func(i int, _ uint16, body []byte, errno unix.Errno) {
		if errno != 0 {
			if errno != unix.ENODEV {
				errs = append(errs, fmt.Errorf("%s: %w", batch[i].What, errno))
			}
			return
		}
		if f, ok := link.Decode(body); ok {
			out[f.Name] = f
		}
	})
	return out, errors.Join(append(errs, err)...)
}

// allLinks reads every link, by index.
func (c *Conn) allLinks() (map[int]link.Found, error) {
	var out map[int]link.Found
	err := c.rtnl.Dump(link.List(), func() { out = map[int]link.Found{} }, func(_ uint16, body []byte) {
		if f, ok := link.Decode(body); ok {
			out[f.Index] = f
		}
	})
	return out, err
}

func (c *Conn) addrs(index int) ([]link.FoundAddr, error) {
	var out []link.FoundAddr
	err := c.rtnl.Dump(link.ListAddrs(index), func() { out = nil }, func(_ uint16, body []byte) {
		if f, ok := link.DecodeAddr(body); ok && (index == 0 || f.Index == index) {
			out = append(out, f)
		}
	})
	return out, err
}

func (c *Conn) routes(family uint8, index int, table uint32) ([]link.FoundRoute, error) {
	var out []link.FoundRoute
	err := c.rtnl.Dump(link.ListRoutes(family, index, table), func() { out = nil }, func(_ uint16, body []byte) {
		f, ok := link.DecodeRoute(body)
		if ok && (index == 0 || f.Index == index) && (table == 0 || f.Table == table) {
			out = append(out, f)
		}
	})
	if errors.Is(err, unix.ENOENT) { // the kernel's word for a table that has no route yet
		return nil, nil
	}
	return out, err
}

func (c *Conn) neighs(index int, proxy bool) ([]link.FoundNeigh, error) {
	var out []link.FoundNeigh
	err := c.rtnl.Dump(link.ListNeighs(index, proxy), func() { out = nil }, func(_ uint16, body []byte) {
		if f, ok := link.DecodeNeigh(body); ok && (index == 0 || f.Index == index) {
			out = append(out, f)
		}
	})
	return out, err
}

func (c *Conn) rules() ([]link.FoundRule, error) {
	var all []link.FoundRule
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		var out []link.FoundRule
		err := c.rtnl.Dump(link.ListRules(family), func() { out = nil }, func(_ uint16, body []byte) {
			if f, ok := link.DecodeRule(body); ok {
				out = append(out, f)
			}
		})
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, out...)
	}
	return all, nil
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
