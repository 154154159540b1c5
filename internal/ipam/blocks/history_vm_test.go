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

// historyVM is a VM in a history: it runs, migrates, is stopped, started on another node, deleted and created again.
type historyVM struct {
	name string
	made int
	// node and id are where it runs; empty if it does not run.
	node, id string
}

// ofVM is the prefix of the owner of a VM's address.
const ofVM = "machine "

func (r *historyVM) holder() string { return fmt.Sprint(ofVM, r.name, " ", r.made) }

// vmOp performs one operation on a VM.
func (h *history) vmOp(n *node) string {
	if n.line.cut || n.line.deaf { // what starts then is another test's
		return "machine, nothing"
	}
	if h.vms == nil {
		for i := range 12 {
			h.vms = append(h.vms, &historyVM{name: fmt.Sprint("vm", i)})
		}
	}
	r := h.vms[h.rand.IntN(len(h.vms))]
	if at := h.nodes[r.node]; r.node != "" {
		if _, runs := at.ledger[key(r.id)]; !runs { // its pod was deleted
			r.node, r.id = "", ""
		}
	}
	switch {
	case r.node == "" && h.rand.IntN(8) == 0:
		return h.deleteVM(r, false)
	case r.node == "":
		return h.boot(n, r)
	case r.node != n.name:
		return h.migrate(n, r)
	}
	return "machine, nothing"
}

func (h *history) hold(n *node, r *historyVM, incoming bool) (ipam.Reservation, string, error) {
	h.next++
	id := fmt.Sprint("v", h.next)
	req := n.vmRequest(r.name, id, calicoConf())
	req.Incoming = incoming
	req.VM.UID = fmt.Sprint(r.made)
	held, err := n.engine.Allocators()[2].(ipam.Reserver).Reserve(context.Background(), req)
	return held, id, err
}

// boot starts a VM on a node. It gets the addresses that it had before, unless their pool is not allocatable, and no
// address of another owner.
func (h *history) boot(n *node, r *historyVM) string {
	held, id, err := h.hold(n, r, false)
	if err != nil {
		return "machine, refused"
	}
	_ = held.Commit()
	had := h.claimed(r)
	for _, ip := range held.Result().IPs {
		a := ip.Address.Addr()
		if by, taken := h.has[a]; taken && by != r.holder() {
			h.t.Fatalf("operation %d: address %s is given to %s on node %s, and %s has it", h.next, a, r.holder(), n.name, by)
		}
		if len(had) > 0 && !slices.Contains(had, a) && !slices.ContainsFunc(had, h.closed) {
			h.t.Fatalf("operation %d: %s gets %s, and its claim has %s", h.next, r.holder(), a, had)
		}
		h.has[a] = r.holder()
		n.ledger[key(id)] = append(n.ledger[key(id)], a)
	}
	for _, a := range had { // what cannot stay is released before long
		if h.closed(a) && !slices.Contains(n.ledger[key(id)], a) {
			delete(h.has, a)
		}
	}
	n.confs[key(id)] = calicoConf()
	r.node, r.id = n.name, id
	return "machine boots"
}

// closed reports whether an address is of a pool that is disabled now and then.
func (h *history) closed(a netip.Addr) bool { return !netip.MustParsePrefix("10.1.0.0/24").Contains(a) }

// claimed returns the addresses of a VM's claims.
func (h *history) claimed(r *historyVM) (out []netip.Addr) {
	for a, by := range h.has {
		if by == r.holder() {
			out = append(out, a)
		}
	}
	return out
}

// migrate migrates a VM to another node. If the addresses cannot be transferred it stays where it is.
func (h *history) migrate(n *node, r *historyVM) string {
	held, id, err := h.hold(n, r, true)
	if err != nil {
		return "machine, refused"
	}
	_ = held.Commit()
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
	req := n.vmRequest(r.name, id, calicoConf())
	req.Held = same
	if err := n.engine.Allocators()[2].(ipam.Transferrer).Transfer(context.Background(), req); err != nil {
		return "machine, migration failed"
	}
	n.ledger[key(id)], n.confs[key(id)] = same, calicoConf()
	_ = from.engine.Allocators()[2].Del(context.Background(), from.req("", key(r.id), addrs...))
	delete(from.ledger, key(r.id))
	r.node, r.id = n.name, id
	return "machine migrates"
}

// deleteVM deletes a stopped VM and its claim, as garbage collection does with owned objects. A later VM of the same
// name is another one.
func (h *history) deleteVM(r *historyVM, all bool) string {
	prompt := h.rand.IntN(2) == 0 // garbage collection may be slow: then the claim is found to be an earlier VM's
	for k, o := range h.dir.objects {
		if (all || prompt) && k.Of(store.AddressClaims()) && strings.Contains(string(o.Raw), `"name":"`+r.name+`",`) {
			delete(h.dir.objects, k)
		}
	}
	for _, a := range h.claimed(r) {
		delete(h.has, a)
	}
	r.made++
	return "machine deleted"
}

// checkClaims compares the claims with the owners of the addresses.
func (h *history) checkClaims() {
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
				h.t.Fatalf("address %s is in the claims of %s and %s", a, other, k.Name)
			}
			said[a] = k.Name
			if by := h.has[a]; by != "" && !strings.HasPrefix(by, ofVM) {
				h.t.Fatalf("address %s is in the claim of %s, and %s has it", a, k.Name, by)
			}
		}
	}
}

// deleteVMs deletes all VMs.
func (h *history) deleteVMs() {
	for _, r := range h.vms {
		if n := h.nodes[r.node]; n != nil && r.id != "" {
			if _, runs := n.ledger[key(r.id)]; runs {
				n.del(r.id)
			}
		}
		r.node, r.id = "", ""
		h.deleteVM(r, true)
	}
}

// freed removes the owners of addresses; VMs keep theirs.
func (h *history) freed(addrs []netip.Addr) {
	maps.DeleteFunc(h.has, func(a netip.Addr, by string) bool {
		return slices.Contains(addrs, a) && !strings.HasPrefix(by, ofVM)
	})
}
