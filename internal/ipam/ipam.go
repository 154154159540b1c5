// SPDX-License-Identifier: Apache-2.0

// Package ipam defines what allocates addresses to attachments, in the terms of a CNI IPAM plugin. The implementations are
// in the packages below it: static, hostlocal, dhcp and blocks.
package ipam

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// Request is one call of an allocator: ADD, DEL, CHECK, STATUS or GC.
type Request struct {
	// Conf is the whole plugin object: the allocator's own settings are in "ipam", and it also reads runtimeConfig, args
	// and cniVersion.
	Conf        json.RawMessage
	Network     string
	ContainerID string
	IfName      string
	// Args are the pairs of CNI_ARGS.
	Args [][2]string
	// Netns is the path of the container's namespace, empty when it is gone.
	Netns string
	// Held are the addresses that the caller's record has for this attachment. Del then releases only those; without them
	// an allocator searches.
	Held []netip.Addr
	// PodRequest is what the annotations of the pod and its namespace request, for an allocator that has pools.
	PodRequest model.AddressRequest
	// VM is the virtual machine that owns the addresses; nil: the attachment owns them. Incoming: the VM runs on another
	// node with its addresses, and is about to migrate here.
	VM       *model.VMRef
	Incoming bool
	// UnverifiedVM: only the pod itself claims to run the VM, so any client that may create pods could claim it.
	UnverifiedVM bool
	// Standby: the attachment has addresses that another one uses.
	Standby bool
}

// Key returns the attachment that the request is for.
func (r Request) Key() model.AttachmentKey {
	return model.AttachmentKey{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

// Capabilities are the optional features of an Allocator. One value has all of them; a feature that is missing there is
// never used.
type Capabilities struct {
	// NeedsLink: it sends packets through the attachment's interface. Add is called when that exists and is up, and Del
	// while it still exists.
	NeedsLink bool
	Reserve   Reserver
	Transfer  Transferrer
	Sticky    StickyAllocator
}

// Reserver is implemented by allocators that can choose addresses before they allocate them, so that the caller writes one
// record instead of two.
type Reserver interface {
	// Reserve chooses addresses, as Add does, and changes nothing. Until the reservation is committed or canceled other
	// calls for the same network wait.
	Reserve(ctx context.Context, req Request) (Reservation, error)
}

// Reservation is a choice of addresses. It ends with the first Commit or Cancel.
type Reservation interface {
	// Result names no interfaces.
	Result() model.Result
	// Commit allocates the addresses, all or none.
	Commit() error
	// Cancel drops the choice; after Commit it does nothing.
	Cancel()
	// Standby reports whether another attachment of the same VM uses the addresses: no route here may lead to them before
	// a Transferrer has moved them.
	Standby() bool
}

// Transferrer is implemented by allocators that can move addresses here from another node.
type Transferrer interface {
	// Transfer makes the VM's addresses, req.Held, those of this attachment, from whichever node has them. It is
	// idempotent.
	Transfer(ctx context.Context, req Request) error
}

// StickyAllocator is implemented by allocators whose addresses can stay with a virtual machine.
type StickyAllocator interface {
	// NotSticky returns why the addresses of the request's VM do not stay with it; empty: they do.
	NotSticky(req Request) (reason string)
}

// Allocator allocates and releases addresses. Errors are *model.Error with the right CNI code.
type Allocator interface {
	// Type is the name in "ipam": {"type": …}.
	Type() string
	// Keys are the keys that the allocator knows below "ipam", dotted for nested objects and with [] for lists
	// ("ranges[][].subnet").
	Keys() []string
	// Validate rejects a configuration (the whole plugin object) that can never allocate an address.
	Validate(conf json.RawMessage) error
	// Add allocates addresses. Its result names no interfaces.
	Add(ctx context.Context, req Request) (model.Result, error)
	// Del releases what the attachment has. It is idempotent.
	Del(ctx context.Context, req Request) error
	// Check reports whether the attachment still has the addresses of prev.
	Check(ctx context.Context, req Request, prev model.Result) error
	// Status reports whether Add could succeed, without side effects.
	Status(ctx context.Context, req Request) error
	// GC releases what belongs to the network and to none of the valid attachments.
	GC(ctx context.Context, req Request, valid []model.AttachmentKey) error
	// Capabilities returns the optional features.
	Capabilities() Capabilities
}
