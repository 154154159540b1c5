// SPDX-License-Identifier: Apache-2.0

// Package ipam says what gives addresses to attachments, in the terms of a CNI IPAM plugin. The ways themselves are in
// hostlocal and static.
package ipam

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// Ask is what an allocator is asked for.
type Ask struct {
	// Conf is the whole plugin object: the allocator's own settings are in "ipam", and it also knows runtimeConfig, args
	// and cniVersion.
	Conf        json.RawMessage
	Network     string
	ContainerID string
	IfName      string
	// Args are the pairs of CNI_ARGS.
	Args [][2]string
	// Netns is the path of the container's namespace, empty when it is gone.
	Netns string
	// Held are the addresses that the caller's own memory says this attachment has. Del then looks only there; without
	// them an allocator searches.
	Held []netip.Addr
	// Wishes are what the pod and its namespace say, for an allocator that knows pools.
	Wishes model.AddressWishes
	// VM is the virtual machine that the addresses are promised to; nil: they are the attachment's. Incoming: the machine
	// runs elsewhere with its addresses, and is to migrate.
	VM       *model.VMRef
	Incoming bool
	// Unproven: the pod itself says whose machine it is there for, and whoever may make pods may say so.
	Unproven bool
	// Standby: the attachment has addresses that another one uses.
	Standby bool
}

// Key is the attachment that is asked for.
func (a Ask) Key() model.AttachmentKey {
	return model.AttachmentKey{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName}
}

// Capabilities are what an Allocator can do beside giving and taking back. It names them all in one value: what is not
// named there is never asked for.
type Capabilities struct {
	// NeedsLink: it sends packets through the attachment's interface. It is asked when that exists and is up, and gets the
	// addresses back while it still exists.
	NeedsLink bool
	Hold      Holder
	Move      Mover
	Keep      Keeper
}

// Holder is what an Allocator is that can say what it will give before it gives it, so that the caller writes down one
// promise instead of two.
type Holder interface {
	// Hold chooses addresses, as Add does, and changes nothing. Until the hold is kept or dropped other calls for the
	// same network wait.
	Hold(ctx context.Context, ask Ask) (Hold, error)
}

// Hold is a choice of addresses. It ends with the first Keep or Drop.
type Hold interface {
	// Result names no interfaces.
	Result() model.Result
	// Keep reserves the addresses, all or none.
	Keep() error
	// Drop gives up the choice; after Keep it does nothing.
	Drop()
	// Standby reports whether another attachment of the same machine uses the addresses: nothing may lead to them here
	// before they are taken by a Mover.
	Standby() bool
}

// Mover is what an Allocator is that can take addresses over from another node.
type Mover interface {
	// Take makes the machine's addresses, ask.Held, those of this attachment, wherever they were. Taken already is no
	// error.
	Take(ctx context.Context, ask Ask) error
}

// Keeper is what an Allocator is by which addresses stay with virtual machines.
type Keeper interface {
	// Keeps is empty where that is so for the asked machine, else why not.
	Keeps(ask Ask) (why string)
}

// Allocator gives and takes back addresses. Errors are *model.Fault with the right CNI code.
type Allocator interface {
	// Type is the name in "ipam": {"type": …}.
	Type() string
	// Keys are the keys that the allocator knows below "ipam", dotted for nested objects and with [] for lists
	// ("ranges[][].subnet").
	Keys() []string
	// Validate refuses a configuration (the whole plugin object) that can never give an address.
	Validate(conf json.RawMessage) error
	// Add reserves addresses. Its result names no interfaces.
	Add(ctx context.Context, ask Ask) (model.Result, error)
	// Del gives back what the attachment has; nothing to give back is no error.
	Del(ctx context.Context, ask Ask) error
	// Check tells whether the attachment still has what prev says.
	Check(ctx context.Context, ask Ask, prev model.Result) error
	// Status tells whether Add could succeed, without side effects.
	Status(ctx context.Context, ask Ask) error
	// GC takes back what belongs to the network and to none of the valid attachments.
	GC(ctx context.Context, ask Ask, valid []model.AttachmentKey) error
	// Capabilities is what it can do beside that.
	Capabilities() Capabilities
}
