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

// Filters are the packet filters of one namespace. What has a socket opens it when it is first needed: most namespaces
// never do. They are safe for concurrent use.
type Filters struct {
	// Root is the directory below which the machine's programs and files are; "" is "/". It is set before anything is
	// asked for.
	Root string
	ns   *netns.NS

	mu        sync.Mutex
	nft       *nft.Conn
	firewalld *firewalld.Client
}

// New is about the namespace ns, nil for the process's own. It opens nothing.
func New(ns *netns.NS) *Filters { return &Filters{ns: ns} }

// Close closes what was opened.
func (f *Filters) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.nft != nil {
		err = f.nft.Close()
	}
	if f.firewalld != nil {
		err = errors.Join(err, f.firewalld.Close())
	}
	return err
}

// Netfilter is the namespace's nft.
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

// Firewalld speaks with the machine's firewalld. It is about the node's namespace alone, and opens nothing yet.
func (f *Filters) Firewalld() *firewalld.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firewalld == nil {
		f.firewalld = firewalld.New(firewalld.Socket)
	}
	return f.firewalld
}

// IPTables speaks of the namespace's iptables; nothing is read or executed before it is asked to.
func (f *Filters) IPTables() *iptables.Conn { return iptables.New(f.ns, f.Root) }

// Count is what the counters of rules with one comment say.
type Count = nft.Count

// Change changes tables that weft owns whole, in one transaction, and reads nothing. Where a table is not as its sender
// took it for, the error wraps nft.ErrUnfit.
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

// Port is what the kernel names as the origin of our changes of nft.
func (f *Filters) Port() (uint32, error) {
	n, err := f.Netfilter()
	if err != nil {
		return 0, err
	}
	return n.Port()
}

// ApplyTables makes tables as they should be, whatever they are.
func (f *Filters) ApplyTables(ctx context.Context, tables []state.Table) error {
	n, err := f.Netfilter()
	if err != nil {
		return err
	}
	return n.Apply(ctx, tables)
}

// RemoveTables deletes tables that weft owns whole. A missing one is no error.
func (f *Filters) RemoveTables(ctx context.Context, tables []state.Table) error {
	n, err := f.Netfilter()
	if err != nil {
		return err
	}
	return n.Remove(ctx, tables)
}

// Learnt are the elements that rules have added to a set; none where it is not there.
func (f *Filters) Learnt(ctx context.Context, family, table string, head state.Set) ([]state.Element, error) {
	n, err := f.Netfilter()
	if err != nil {
		return nil, err
	}
	return n.Learnt(ctx, family, table, head)
}

// Unlearn takes elements out of such sets. Missing ones are no error.
func (f *Filters) Unlearn(ctx context.Context, family, table string, sets ...state.Set) error {
	n, err := f.Netfilter()
	if err != nil {
		return err
	}
	return n.Unlearn(ctx, family, table, sets...)
}
