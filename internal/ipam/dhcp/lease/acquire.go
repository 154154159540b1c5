// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// settleTime is how long a lease that a killed process may have got is asked for, to give it back.
	settleTime = 3 * time.Second
	// undoTime is how long giving back may take when the caller has given up.
	undoTime = 5 * time.Second
)

// place opens a record's namespace. The error wraps netns.ErrGone when there is none, or another one by that name.
func (k *Keeper) place(rec record) (*netns.NS, error) {
	if rec.Netns == "" {
		return nil, fmt.Errorf("namespace: %w", netns.ErrGone)
	}
	ns, err := netns.Open(k.cfg.HostPrefix + rec.Netns)
	if err != nil {
		return nil, err
	}
	id, err := ns.ID()
	if err == nil && rec.NetnsID != 0 && id != rec.NetnsID {
		err = fmt.Errorf("namespace %s is another one: %w", rec.Netns, netns.ErrGone)
	}
	if err != nil {
		_ = ns.Close()
		return nil, err
	}
	return ns, nil
}

// holds tells whether a record's leases are what is asked for, and hold.
func (k *Keeper) holds(rec record, ask ipam.Ask) bool {
	if rec.Lost != "" || rec.Netns != ask.Netns || len(rec.Grants) != len(rec.families()) {
		return false
	}
	ns, err := k.place(rec)
	if err != nil {
		return false
	}
	defer func() { _ = ns.Close() }()
	_, err = exchange.FindLink(ns, rec.IfName)
	return err == nil
}

// acquire gets a record's leases. It promises before it asks; when it fails, everything is given back.
func (k *Keeper) acquire(ctx context.Context, rec record) (record, error) {
	ns, err := k.place(rec)
	if err != nil {
		return rec, model.Faultf(model.CodeInvalidNetns, "is CNI_NETNS the path of a network namespace?",
			"dhcp: CNI_NETNS: %w", err)
	}
	defer func() { _ = ns.Close() }()
	if rec.NetnsID, err = ns.ID(); err != nil {
		return rec, err
	}
	l, err := exchange.Raise(ctx, ns, rec.IfName)
	if err != nil {
		return rec, model.Faultf(model.CodeIO, "dhcp sends packets through the interface: it must be there before",
			"dhcp: %w in %s", err, rec.Netns)
	}
	rec.LinkMTU = l.MTU
	if err := k.save(rec); err != nil {
		return rec, err
	}
	for _, f := range rec.families() {
		g, err := k.one(ctx, ns, l, rec, f, netip.Addr{}, k.cfg.World)
		if err == nil {
			rec.Grants = append(rec.Grants, g)
			err = k.save(rec)
		}
		if err != nil {
			return rec, errors.Join(unanswered(err), k.undo(ctx, rec))
		}
	}
	return rec, nil
}

// one gets a lease of one family.
func (k *Keeper) one(
	ctx context.Context, ns *netns.NS, l exchange.Link, rec record, f exchange.Family, want netip.Addr, w exchange.World,
) (exchange.Grant, error) {
	c, err := exchange.Open(ctx, ns, l, f, rec.identity(), w)
	if err != nil {
		return exchange.Grant{}, err
	}
	defer func() { _ = c.Close() }()
	g, err := c.Acquire(ctx, want)
	if err != nil {
		return g, err
	}
	return g, k.cfg.Step.At("after grant")
}

// unanswered gives an error that another try may not have the code that says so.
func unanswered(err error) error {
	var f *model.Fault
	if errors.As(err, &f) {
		return err
	}
	hint := ""
	if errors.Is(err, exchange.ErrSilent) {
		hint = "is there a DHCP server on this network, and can the interface reach it?"
	}
	return model.Faultf(model.CodeTryAgain, hint, "dhcp: %w", err)
}

// undo gives back what a failed Add got.
func (k *Keeper) undo(ctx context.Context, rec record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	k.release(ctx, rec, false)
	return k.forget(rec.key())
}

// drop stops keeping a lease, gives it back and forgets it.
func (k *Keeper) drop(ctx context.Context, l *kept) error {
	l.stop()
	<-l.done
	rec := l.snapshot()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := k.cfg.Step.At("before release"); err != nil {
		return err
	}
	k.release(ctx, rec, true)
	if err := k.forget(rec.key()); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leases[rec.key()] == l {
		delete(k.leases, rec.key())
	}
	return nil
}

// release gives a record's leases back as well as it can: a server gets an address back in the end whether it is told
// or not. With settle, leases that the record does not know of are asked for, so that they can be given back.
func (k *Keeper) release(ctx context.Context, rec record, settle bool) {
	log := k.cfg.Log.With("attachment", rec.key().String())
	ns, err := k.place(rec)
	var l exchange.Link
	if err == nil {
		defer func() { _ = ns.Close() }()
		if l, err = exchange.FindLink(ns, rec.IfName); err == nil && !l.Up {
			err = fmt.Errorf("interface %q is down", rec.IfName)
		}
	}
	if err != nil {
		log.Info("leases are released from the node", "reason", err)
		for _, g := range rec.Grants {
			k.fromNode(rec, g)
		}
		return
	}
	if settle && rec.Lost == "" {
		rec = k.settle(ctx, ns, l, rec)
	}
	for _, g := range rec.Grants {
		c, err := exchange.Open(ctx, ns, l, g.Family, rec.identity(), k.cfg.World)
		if err == nil {
			err = errors.Join(c.Release(ctx, g), c.Close())
		}
		if err != nil {
			log.Warn("the server is not told that its address is free", "family", g.Family.String(), "err", err)
		}
	}
}

// settle asks for the leases that a process killed at its Add may have got: its client gets the same ones again.
func (k *Keeper) settle(ctx context.Context, ns *netns.NS, l exchange.Link, rec record) record {
	w := k.cfg.World
	w.ResendTimeout = min(w.ResendTimeout, settleTime)
	for _, f := range rec.families() {
		known := false
		for _, g := range rec.Grants {
			known = known || g.Family == f
		}
		if known {
			continue
		}
		if g, err := k.one(ctx, ns, l, rec, f, netip.Addr{}, w); err == nil {
			rec.Grants = append(rec.Grants, g)
		}
	}
	return rec
}

// fromNode tells a server from here that a lease is over.
func (k *Keeper) fromNode(rec record, g exchange.Grant) {
	if err := exchange.ReleaseFromNode(g, rec.identity(), k.cfg.World); err != nil {
		k.cfg.Log.Info("the server is not told that its address is free", "attachment", rec.key().String(), "err", err)
	}
}
