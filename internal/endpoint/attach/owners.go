// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// owners tracks the recorded attachments of each network, with the serials of their records.
type owners struct {
	mu sync.Mutex
	of map[string]map[model.AttachmentKey]int64
}

// written adds a record.
func (o *owners) written(rec Record) {
	k := rec.Key()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[k.Network] == nil {
		o.of[k.Network] = map[model.AttachmentKey]int64{}
	}
	o.of[k.Network][k] = rec.Serial
}

// has reports whether the record is current, and not replaced by a later ADD.
func (o *owners) has(rec Record) bool {
	k := rec.Key()
	o.mu.Lock()
	defer o.mu.Unlock()
	serial, ok := o.of[k.Network][k]
	return ok && serial == rec.Serial
}

// forgotten removes a record.
func (o *owners) forgotten(k model.AttachmentKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of[k.Network], k)
	if len(o.of[k.Network]) == 0 {
		delete(o.of, k.Network)
	}
}

// last reports whether a network has no other attachment.
func (o *owners) last(k model.AttachmentKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, mine := o.of[k.Network][k]
	return len(o.of[k.Network]) == 0 || len(o.of[k.Network]) == 1 && mine
}

// cooling counts the dead links that still hold an address, by network and address.
type cooling struct {
	mu sync.Mutex
	of map[string]int
}

func (c *cooling) begin(network string, addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range addrs {
		c.of[network+"/"+addr.String()]++
	}
}

func (c *cooling) end(network string, addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range addrs {
		k := network + "/" + addr.String()
		if c.of[k]--; c.of[k] <= 0 {
			delete(c.of, k)
		}
	}
}

// any reports whether a dead link holds one of the addresses.
func (c *cooling) any(network string, addrs []netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range addrs {
		if c.of[network+"/"+addr.String()] > 0 {
			return true
		}
	}
	return false
}
