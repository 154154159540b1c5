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
	// recoverTime is how long a lease that a killed process may have acquired is requested, to release it.
	recoverTime = 3 * time.Second
	// undoTime is how long a release may take when the caller has given up.
	undoTime = 5 * time.Second
)

// openNamespace opens a record's namespace. The error wraps netns.ErrGone when there is none, or another one by that
// name.
func (k *Manager) openNamespace(rec record) (*netns.NS, error) {
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

// matches reports whether a record's leases are valid and serve the request.
func (k *Manager) matches(rec record, req ipam.Request) bool {
	if rec.Lost != "" || rec.Netns != req.Netns || len(rec.Grants) != len(rec.families()) {
		return false
	}
	ns, err := k.openNamespace(rec)
	if err != nil {
		return false
	}
	defer func() { _ = ns.Close() }()
	_, err = exchange.FindLink(ns, rec.IfName)
	return err == nil
}

// acquire acquires a record's leases. It writes the record before the first message; when it fails, it releases
// everything.
func (k *Manager) acquire(ctx context.Context, rec record) (record, error) {
	ns, err := k.openNamespace(rec)
	if err != nil {
		return rec, model.Errorf(model.CodeInvalidNetns, "is CNI_NETNS the path of a network namespace?",
			"dhcp: CNI_NETNS: %w", err)
	}
	defer func() { _ = ns.Close() }()
	if rec.NetnsID, err = ns.ID(); err != nil {
		return rec, err
	}
	l, err := exchange.Raise(ctx, ns, rec.IfName)
	if err != nil {
		return rec, model.Errorf(model.CodeIO, "dhcp sends packets through the interface: it must be there before",
			"dhcp: %w in %s", err, rec.Netns)
	}
	rec.LinkMTU = l.MTU
	if err := k.save(rec); err != nil {
		return rec, err
	}
	for _, f := range rec.families() {
		g, err := k.acquireFamily(ctx, ns, l, rec, f, netip.Addr{}, k.cfg.Exchange)
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

// acquireFamily acquires a lease of one family.
func (k *Manager) acquireFamily(
	ctx context.Context, ns *netns.NS, l exchange.Link, rec record, f exchange.Family, want netip.Addr, w exchange.Options,
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
	return g, k.cfg.Failpoint.At("after grant")
}

// unanswered returns an error with the code to try again.
func unanswered(err error) error {
	var f *model.Error
	if errors.As(err, &f) {
		return err
	}
	hint := ""
	if errors.Is(err, exchange.ErrSilent) {
		hint = "is there a DHCP server on this network, and can the interface reach it?"
	}
	return model.Errorf(model.CodeTryAgain, hint, "dhcp: %w", err)
}

// undo releases the leases of a failed Add.
func (k *Manager) undo(ctx context.Context, rec record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	k.release(ctx, rec, false)
	return k.forget(rec.key())
}

// drop stops renewing a lease, releases and forgets it.
func (k *Manager) drop(ctx context.Context, l *managedLease) error {
	l.stop()
	<-l.done
	rec := l.snapshot()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := k.cfg.Failpoint.At("before release"); err != nil {
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

// release releases a record's leases as far as possible: without it, a server frees the address when the lease expires.
// With settle, leases that the record does not have are requested, so that they can be released.
func (k *Manager) release(ctx context.Context, rec record, settle bool) {
	log := k.cfg.Log.With("attachment", rec.key().String())
	ns, err := k.openNamespace(rec)
	var l exchange.Link
	if err == nil {
		defer func() { _ = ns.Close() }()
		if l, err = exchange.FindLink(ns, rec.IfName); err == nil && !l.Up {
			err = fmt.Errorf("interface %q is down", rec.IfName)
		}
	}
	if err != nil {
		log.Info("agent releases leases from the node's namespace", "reason", err)
		for _, g := range rec.Grants {
			k.releaseFromNode(rec, g)
		}
		return
	}
	if settle && rec.Lost == "" {
		rec = k.recoverLeases(ctx, ns, l, rec)
	}
	for _, g := range rec.Grants {
		c, err := exchange.Open(ctx, ns, l, g.Family, rec.identity(), k.cfg.Exchange)
		if err == nil {
			err = errors.Join(c.Release(ctx, g), c.Close())
		}
		if err != nil {
			log.Warn("agent could not release the lease at its server", "family", g.Family.String(), "err", err)
		}
	}
}

// recoverLeases requests the leases that a process killed during Add may have acquired: the server assigns the same
// ones again.
func (k *Manager) recoverLeases(ctx context.Context, ns *netns.NS, l exchange.Link, rec record) record {
	w := k.cfg.Exchange
	w.ResendTimeout = min(w.ResendTimeout, recoverTime)
	for _, f := range rec.families() {
		known := false
		for _, g := range rec.Grants {
			known = known || g.Family == f
		}
		if known {
			continue
		}
		if g, err := k.acquireFamily(ctx, ns, l, rec, f, netip.Addr{}, w); err == nil {
			rec.Grants = append(rec.Grants, g)
		}
	}
	return rec
}

// releaseFromNode releases a lease from the node's namespace.
func (k *Manager) releaseFromNode(rec record, g exchange.Grant) {
	if err := exchange.ReleaseFromNode(g, rec.identity(), k.cfg.Exchange); err != nil {
		k.cfg.Log.Info("agent could not release the lease at its server", "attachment", rec.key().String(), "err", err)
	}
}
