// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/firewalld"
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/reader"
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
	// reader asks over rtnl.
	reader *reader.Reader
	conf   *sysctl.Files
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
	return &Conn{ns: ns, rtnl: s, reader: reader.New(s), conf: sysctl.New(ns), index: newIndex}, nil
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
