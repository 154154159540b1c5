// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/ipset"
	"github.com/weft-net/weft/internal/kernel/join"
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

const (
	// ReaperGroup is the link group of links that wait for the reaper.
	ReaperGroup = link.DeadGroup
	// Protocol is weft's own route protocol number (rtnetlink(7), rtm_protocol): "w".
	Protocol = link.Protocol
	// mark is the prefix of the ifalias of all links that weft made.
	mark = "weft:"
	// SharedMark is the prefix of the ifalias of links that weft made for several owners.
	SharedMark = mark + "shared"
)

// Conn has the open sockets of one network namespace. It is safe for concurrent use.
type Conn struct {
	ns   *netns.NS
	rtnl *rtnl.Socket
	// reader reads through rtnl.
	reader *reader.Reader
	conf   *sysctl.Files
	// index chooses the index of a new link.
	index func() int
	// Changing, which may be nil, is called with a setting of the namespace, or of another owner's link, and its value,
	// before Apply changes it. After an error it is not changed. It must be set before the first Apply.
	Changing func(name, value string) error
	// Programs, which may be nil, join links by eBPF. It must be set before the first Apply.
	Programs join.Programs
	*netfilter.Filters
	connections
}

// Dial opens the sockets in ns; nil is the process's own namespace. ns must stay open as long as the Conn.
func Dial(ns *netns.NS) (*Conn, error) {
	s, err := rtnl.Open(ns)
	if err != nil {
		return nil, err
	}
	return &Conn{
		ns: ns, rtnl: s, reader: reader.New(s), conf: sysctl.New(ns), index: newIndex,
		Filters: netfilter.New(ns), connections: connections{ns: ns},
	}, nil
}

// Close closes the sockets.
func (c *Conn) Close() error {
	c.conf.Close()
	return errors.Join(c.rtnl.Close(), c.tracked.Close(), c.Filters.Close())
}

// Writes returns the number of rtnetlink requests that changed or tried to change an object.
func (c *Conn) Writes() int { return c.rtnl.Writes() }

// Messages returns the number of rtnetlink messages in both directions.
func (c *Conn) Messages() int { return c.rtnl.Messages() }

// Change changes tables that weft owns as a whole, in one transaction, without reading them.
func (c *Conn) Change(ctx context.Context, changes []state.TableChange) error {
	err := c.Filters.Change(ctx, changes)
	if errors.Is(err, nft.ErrStale) {
		return fmt.Errorf("%w: %w", ErrStaleTable, err)
	}
	return err
}

// DeleteLinks deletes links by their names, whichever program made them. Missing ones are no error.
func (c *Conn) DeleteLinks(ctx context.Context, names ...string) error {
	found, err := c.reader.LinksByName(ctx, names)
	if err != nil {
		return err
	}
	var batch []*rtnl.Message
	for name, f := range found {
		batch = append(batch, link.Delete(f.Index, name))
	}
	return c.rtnl.Send(ctx, batch)
}

// IPSets returns the names of the namespace's ipsets that have a prefix; a kernel without ipset has none.
func (c *Conn) IPSets(prefix string) ([]string, error) { return ipset.Names(c.ns, prefix) }

// DeleteIPSet deletes an ipset. A missing one is no error.
func (c *Conn) DeleteIPSet(name string) error { return ipset.Destroy(c.ns, name) }

// Spaces are the two namespaces of a fragment. Pod and PodNS are nil when there is none, or when it was deleted.
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

// in adds the namespace to an error.
func in(name state.SpaceName, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
