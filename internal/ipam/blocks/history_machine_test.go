// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
)

// roamer is a virtual machine in a history: it runs, migrates, is stopped, started elsewhere, deleted and made anew.
type roamer struct {
	name string
	made int
	// node and id are where it runs; empty: it does not.
	node, id string
}

// ofMachine begins who has an address that is promised to a machine.
const ofMachine = "machine "

func (r *roamer) holder() string { return fmt.Sprint(ofMachine, r.name, " ", r.made) }

// machineOp does one operation on a machine.
func (h *history) machineOp(n *node) string {
	if n.line.cut || n.line.deaf { // what starts then is another test's
		return "machine, nothing"
	}
	if h.roamers == nil {
		for i := range 12 {
			h.roamers = append(h.roamers, &roamer{name: fmt.Sprint("vm", i)})
		}
	}
	r := h.roamers[h.rand.IntN(len(h.roamers))]
	if at := h.nodes[r.node]; r.node != "" {
		if _, runs := at.ledger[key(r.id)]; !runs { // its pod was deleted
			r.node, r.id = "", ""
		}
	}
	switch {
	case r.node == "" && h.rand.IntN(8) == 0:
		return h.unmake(r, false)
	case r.node == "":
		return h.boot(n, r)
	case r.node != n.name:
		return h.migrate(n, r)
	}
	return "machine, nothing"
}

func (h *history) hold(n *node, r *roamer, incoming bool) (ipam.Hold, string, error) {
	h.next++
	id := fmt.Sprint("v", h.next)
	ask := n.machineAsk(r.name, id, calicoConf())
	ask.Incoming = incoming
	ask.VM.UID = fmt.Sprint(r.made)
	held, err := n.engine.Allocators()[2].(ipam.Holder).Hold(context.Background(), ask)
	return held, id, err
}

// boot starts a machine on a node. It has the addresses that it had before, unless their pool gives none, and nobody
// else has.
func (h *history) boot(n *node, r *roamer) string {
	held, id, err := h.hold(n, r, false)
	if err != nil {
		return "machine, refused"
	}
	_ = held.Keep()
	had := h.promised(r)
	for _, ip := range held.Result().IPs {
		a := ip.Address.Addr()
		if by, taken := h.has[a]; taken && by != r.holder() {
			h.t.Fatalf("operation %d: address %s is given to %s on node %s, and %s has it", h.next, a, r.holder(), n.name, by)
		}
		if len(had) > 0 && !slices.Contains(had, a) && !slices.ContainsFunc(had, h.closed) {
			h.t.Fatalf("operation %d: %s gets %s, and was promised %s", h.next, r.holder(), a, had)
		}
		h.has[a] = r.holder()
		n.ledger[key(id)] = append(n.ledger[key(id)], a)
	}
	for _, a := range had { // what cannot stay is nobody's before long
		if h.closed(a) && !slices.Contains(n.ledger[key(id)], a) {
			delete(h.has, a)
		}
	}
	n.confs[key(id)] = calicoConf()
	r.node, r.id = n.name, id
	return "machine boots"
}

// closed tells whether an address is of a pool that people close now and then.
func (h *history) closed(a netip.Addr) bool { return !netip.MustParsePrefix("10.1.0.0/24").Contains(a) }

// promised are the addresses that a machine has by now, whoever uses them.
func (h *history) promised(r *roamer) (out []netip.Addr) {
	for a, by := range h.has {
		if by == r.holder() {
			out = append(out, a)
		}
	}
	return out
}

// migrate has a machine go to another node. When the addresses cannot be taken it stays where it is.
func (h *history) migrate(n *node, r *roamer) string {
	held, id, err := h.hold(n, r, true)
	if err != nil {
		return "machine, refused"
	}
	_ = held.Keep()
	from := h.nodes[r.node]
	addrs := from.ledger[key(r.id)]
	var same []netip.Addr
	for _, ip := range held.Result().IPs {
		same = append(same, ip.Address.Addr())
	}
	if !held.Standby() || !slices.Equal(same, addrs) {
		h.t.Fatalf("operation %d: the target of %s gets %v (stands by: %t), the source has %v", h.next, r.holder(), same,
			held.Standby(), addrs)
	}
	ask := n.machineAsk(r.name, id, calicoConf())
	ask.Held = same
	if err := n.engine.Allocators()[2].(ipam.Mover).Take(context.Background(), ask); err != nil {
		return "machine, migration failed"
	}
	n.ledger[key(id)], n.confs[key(id)] = same, calicoConf()
	_ = from.engine.Allocators()[2].Del(context.Background(), from.ask("", key(r.id), addrs...))
	delete(from.ledger, key(r.id))
	r.node, r.id = n.name, id
	return "machine migrates"
}

// unmake deletes a machine that does not run, and its promise, as a server does with what belonged to it. The next one
// of the name is another one.
func (h *history) unmake(r *roamer, all bool) string {
	prompt := h.rand.IntN(2) == 0 // a server may be slow: then the promise is found to be an earlier machine's
	for k, o := range h.dir.objects {
		if (all || prompt) && k.Of(store.AddressClaims()) && strings.Contains(string(o.Raw), `"name":"`+r.name+`",`) {
			delete(h.dir.objects, k)
		}
	}
	for _, a := range h.promised(r) {
		delete(h.has, a)
	}
	r.made++
	return "machine deleted"
}

// promisesAgree compares what claims say with who has addresses.
func (h *history) promisesAgree() {
	said := map[netip.Addr]string{}
	for k, o := range h.dir.objects {
		if !k.Of(store.AddressClaims()) {
			continue
		}
		var c struct {
			Status struct{ Addresses []netip.Addr } `json:"status"`
		}
		if err := json.Unmarshal(o.Raw, &c); err != nil {
			h.t.Fatal(err)
		}
		for _, a := range c.Status.Addresses {
			if other, twice := said[a]; twice {
				h.t.Fatalf("address %s is promised to %s and to %s", a, other, k.Name)
			}
			said[a] = k.Name
			if by := h.has[a]; by != "" && !strings.HasPrefix(by, ofMachine) {
				h.t.Fatalf("address %s is promised to %s, and %s has it", a, k.Name, by)
			}
		}
	}
}

// unmakeAll deletes all machines.
func (h *history) unmakeAll() {
	for _, r := range h.roamers {
		if n := h.nodes[r.node]; n != nil && r.id != "" {
			if _, runs := n.ledger[key(r.id)]; runs {
				n.del(r.id)
			}
		}
		r.node, r.id = "", ""
		h.unmake(r, true)
	}
}

// freed forgets who has addresses; what is promised to machines stays theirs.
func (h *history) freed(addrs []netip.Addr) {
	maps.DeleteFunc(h.has, func(a netip.Addr, by string) bool {
		return slices.Contains(addrs, a) && !strings.HasPrefix(by, ofMachine)
	})
}
