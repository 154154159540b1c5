// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// Numbers that golang.org/x/sys/unix lacks (linux/netfilter/nf_tables.h).
const (
	flowCounter   = 2 // NFT_FLOWTABLE_COUNTER
	netdevIngress = 0 // NF_NETDEV_INGRESS

	flowTable, flowName, flowHook, flowFlags  = 1, 2, 3, 7 // NFTA_FLOWTABLE_…
	flowHookNumber, flowPriority, flowDevices = 1, 2, 3    // NFTA_FLOWTABLE_HOOK_…
	deviceName                                = 1          // NFTA_DEVICE_NAME

	// maxDevices is how many devices one message can have (NFT_NETDEVICE_MAX).
	maxDevices = 256
)

// Replace deletes tables, whatever they contain, and makes them as they should be, in one transaction. It is for tables
// with flowtables, whose flows end with them, and for volatile ones, which only it can make. A table of that name that
// belongs to another socket is an error.
func (c *Conn) Replace(ctx context.Context, tables ...state.Table) error {
	ws, err := compile(tables)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.clear()
	return retryStale(ctx, func() (stale bool, err error) {
		b := c.wire.begin(0)
		for _, w := range ws {
			switch there, err := c.reader.exists(w); {
			case err != nil:
				return false, err
			case there:
				b.dropTable(w)
			}
		}
		for _, w := range ws {
			b.difference(w, compareTables(w, nil))
		}
		_, stale, err = c.wire.change(b)
		return stale, err
	})
}

// exists reports whether there is a table of that name.
func (r *reader) exists(t *table) (bool, error) {
	b := r.wire.question(unix.NFT_MSG_GETTABLE, t.Family, "read table "+t.Label())
	b.String(unix.NFTA_TABLE_NAME, t.Name)
	switch _, err := r.wire.ask(b); {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	default:
		return err == nil, err
	}
}

// putFlowtable writes the messages that make a flowtable at its devices.
func (b *batch) putFlowtable(t *table, f state.Flowtable) {
	devices := f.Devices
	for first := true; first || len(devices) > 0; first = false {
		n := min(len(devices), maxDevices)
		b.message(unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE, t.Family, "make flowtable "+f.Name)
		b.String(flowTable, t.Name)
		b.String(flowName, f.Name)
		hook := b.Begin(flowHook | nested)
		b.BE32(flowHookNumber, netdevIngress)
		b.BE32(flowPriority, uint32(int32(f.Priority)))
		if n > 0 {
			list := b.Begin(flowDevices | nested)
			for _, name := range devices[:n] {
				b.String(deviceName, name)
			}
			b.End(list)
		}
		b.End(hook)
		b.BE32(flowFlags, flowCounter)
		devices = devices[n:]
	}
}
