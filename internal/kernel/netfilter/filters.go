// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"sync"

	"github.com/weft-net/weft/internal/kernel/firewalld"
	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Filters are the packet filters of one namespace. Sockets are opened when they are first needed: most namespaces never
// need them. It is safe for concurrent use.
type Filters struct {
	// Root is the directory below which the host's programs and files are; "" is "/". It is set before the first use.
	Root string
	ns   *netns.NS

	mu        sync.Mutex
	nft       *nft.Conn
	firewalld *firewalld.Client
	legacy    [2]legacyNames // of IPv4 and IPv6
}

// New returns the filters of ns, nil for the process's own namespace. It opens nothing.
func New(ns *netns.NS) *Filters { return &Filters{ns: ns} }

// Close closes the open sockets.
func (f *Filters) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.legacy {
		f.legacy[i].close()
	}
	var err error
	if f.nft != nil {
		err = f.nft.Close()
	}
	if f.firewalld != nil {
		err = errors.Join(err, f.firewalld.Close())
	}
	return err
}

// Netfilter returns the namespace's nft.
func (f *Filters) Netfilter() (*nft.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nft == nil {
		n, err := nft.Dial(f.ns)
		if err != nil {
			return nil, err
		}
		f.nft = n
	}
	return f.nft, nil
}

// Firewalld returns a client of the host's firewalld, for the node's namespace only. It opens nothing yet.
func (f *Filters) Firewalld() *firewalld.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firewalld == nil {
		f.firewalld = firewalld.New(firewalld.Socket)
	}
	return f.firewalld
}

// IPTables returns the namespace's iptables; it reads and executes nothing yet.
func (f *Filters) IPTables() *iptables.Conn { return iptables.New(f.ns, f.Root) }

// Count is the sum of the counters of rules with the same comment.
type Count = nft.Count

// Change changes tables that weft owns as a whole, in one transaction, without reading. If a table is not what the
// caller assumed, the error wraps nft.ErrStale.
func (f *Filters) Change(ctx context.Context, changes []state.TableChange) error {
	n, err := f.Netfilter()
	if err != nil {
		return err
	}
	return n.Change(ctx, changes)
}

// Counts reads the counters of a table's rules that have a comment.
func (f *Filters) Counts(ctx context.Context, family, table string) ([]Count, error) {
	n, err := f.Netfilter()
	if err != nil {
		return nil, err
	}
	return n.Counts(ctx, family, table)
}

// NftBytes returns the size of all requests to nft and their answers.
func (f *Filters) NftBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nft == nil {
		return 0
	}
	return f.nft.Bytes()
}

// Port returns the netlink port that identifies our changes of nft in notifications.
func (f *Filters) Port() (uint32, error) {
	n, err := f.Netfilter()
	if err != nil {
		return 0, err
	}
	return n.Port()
}

// ApplyTables makes the kernel's tables equal to the given ones.
func (f *Filters) ApplyTables(ctx context.Context, tables []state.Table) error {
	n, err := f.Netfilter()
	if err != nil {
		return err
	}
	return n.Apply(ctx, tables)
}

// RemoveTables deletes tables that weft owns as a whole. A missing one is no error.
func (f *Filters) RemoveTables(ctx context.Context, tables []state.Table) error {
	n, err := f.Netfilter()
	if err != nil {
		return err
	}
	return n.Remove(ctx, tables)
}

// DynamicElements returns the elements that rules have added to a set; none when the set is missing.
func (f *Filters) DynamicElements(ctx context.Context, family, table string, head state.Set) ([]state.Element, error) {
	n, err := f.Netfilter()
	if err != nil {
		return nil, err
	}
	return n.DynamicElements(ctx, family, table, head)
}

// DeleteDynamic deletes elements of such sets. Missing ones are no error.
func (f *Filters) DeleteDynamic(ctx context.Context, family, table string, sets ...state.Set) error {
	n, err := f.Netfilter()
	if err != nil {
		return err
	}
	return n.DeleteDynamic(ctx, family, table, sets...)
}
