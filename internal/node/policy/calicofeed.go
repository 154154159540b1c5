// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// calicoFeed reads Calico's own policies, and what they use. Two API groups can have the same object: that of the stored
// objects, and that of Calico's API server.
type calicoFeed struct {
	*feed
	objects map[store.Key]map[string]store.Object // by the key without a group, and group
	found   chan struct{}                         // closed when the server has the kinds of a group
	used    chan struct{}                         // closed when a rule matches the endpoints of a Service
}

func newCalicoFeed(fe *feed) *calicoFeed {
	fe.desired.calicoUnsynced = len(calico.PolicyKinds())
	return &calicoFeed{feed: fe, objects: map[store.Key]map[string]store.Object{}, found: make(chan struct{}), used: make(chan struct{})}
}

// kindFinder is a Source that knows which kinds its server has. Others have them all.
type kindFinder interface {
	Has(ctx context.Context, kind store.Kind) (bool, error)
}

// The pauses between two probes for Calico's kinds, which most clusters do not have: a server that starts may not have
// loaded its CRDs, but thousands of nodes must not ask it often.
const firstProbe, maxProbe = 2 * time.Second, 5 * time.Minute

// follow watches the kinds of one group, as soon as the server has the first of them, until ctx ends.
func (cf *calicoFeed) follow(ctx context.Context, kinds []store.Kind) error {
	synced := false
	syncLocked := func() {
		if !synced {
			synced = true
			cf.desired.calicoUnsynced--
		}
	}
	logged := ""
	finder, limited := cf.cfg.Source.(kindFinder)
	for pause := firstProbe; limited; pause = min(2*pause, maxProbe) {
		has, err := finder.Has(ctx, kinds[0])
		if ctx.Err() != nil {
			return nil
		}
		if has {
			break
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			cf.log.Warn("Calico's policies could not be looked for; agent retries", "err", err)
		}
		// The second group is that of Calico's API server, which shows stored objects: its pods may wait for this node.
		if stored := kinds[0].Group == calico.PolicyKinds()[0][0].Group; err != nil && stored {
			pause = watchPause
		} else {
			cf.desired.mu.Lock()
			syncLocked()
			cf.desired.changedLocked()
			cf.desired.mu.Unlock()
			cf.desired.due.Notify()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-cf.cfg.After(pause):
		}
	}
	cf.desired.mu.Lock()
	select {
	case <-cf.found:
	default:
		cf.desired.calicoUnsynced++ // the service accounts
		close(cf.found)
	}
	cf.desired.mu.Unlock()
	return cf.feed.follow(ctx, syncLocked, kinds...)
}

// followAccounts watches the service accounts, whose labels only Calico's policies use.
func (cf *calicoFeed) followAccounts(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-cf.found:
	}
	return cf.feed.follow(ctx, func() { cf.desired.calicoUnsynced-- }, store.ServiceAccounts())
}

// followSlices watches the endpoints of Services once a rule matches some.
func (cf *calicoFeed) followSlices(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-cf.used:
	}
	return cf.feed.follow(ctx, func() { cf.desired.calicoUnsynced-- }, store.EndpointSlices())
}

// wantSlicesLocked starts to watch the endpoints of Services.
func (cf *calicoFeed) wantSlicesLocked() {
	select {
	case <-cf.used:
	default:
		cf.desired.calicoUnsynced++
		close(cf.used)
	}
}

// handleLocked passes an event to the index.
func (cf *calicoFeed) handleLocked(o store.Object, gone bool) error {
	switch {
	case o.Key.Of(store.ServiceAccounts()):
		return cf.handleAccountLocked(o, gone)
	case o.Key.Of(store.EndpointSlices()):
		return cf.handleSliceLocked(o, gone)
	}
	if calico.Derived(o.Key) {
		return nil // what Calico has made of Kubernetes' policies
	}
	name := o.Key
	name.Group = ""
	if calico.IsPolicy(o.Key) {
		name.Name = calico.PolicyKey(o.Key).Name
	}
	now, is := cf.chosenLocked(name, o, gone)
	cf.desired.checkDue.Notify()
	if calico.IsPolicy(o.Key) {
		return cf.applyPolicyLocked(calico.PolicyKey(o.Key), now, is)
	}
	handle := cf.handleHostLocked
	switch {
	case calico.IsTier(o.Key):
		handle = cf.handleTierLocked
	case calico.IsNetworkSet(o.Key):
		handle = cf.handleNetworkSetLocked
	}
	err := handle(now, name, is)
	if err != nil && cf.feed.cfg.Unsupported != nil {
		cf.feed.cfg.Unsupported.Invalid(now, err)
	}
	return err
}

// chosenLocked stores an object of one group, and returns the one to use: the stored object rather than that of Calico's
// API server; false: none is left.
func (cf *calicoFeed) chosenLocked(name store.Key, o store.Object, gone bool) (store.Object, bool) {
	all := cf.objects[name]
	if all == nil {
		all = map[string]store.Object{}
		cf.objects[name] = all
	}
	if all[o.Key.Group] = o; gone {
		delete(all, o.Key.Group)
	}
	for _, kinds := range calico.PolicyKinds() {
		if now, is := all[kinds[0].Group]; is {
			return now, true
		}
	}
	delete(cf.objects, name)
	return store.Object{}, false
}

func (cf *calicoFeed) applyPolicyLocked(key model.PolicyKey, o store.Object, is bool) error {
	if !is {
		cf.setPolicyLocked(key, nil)
		return nil
	}
	p, err := calico.Policy(o)
	if err != nil {
		cf.keepPolicyLocked(key, err)
		return err
	}
	if len(p.Services()) > 0 {
		cf.wantSlicesLocked()
	}
	cf.setPolicyLocked(key, &p)
	return nil
}

func (cf *calicoFeed) handleTierLocked(o store.Object, name store.Key, is bool) error {
	if !is {
		cf.desired.index.Calico().DelTier(model.PolicyTier(name.Name))
		return nil
	}
	t, err := calico.Tier(o)
	if t != nil {
		cf.desired.index.Calico().SetTier(*t)
	}
	return err
}

func (cf *calicoFeed) handleNetworkSetLocked(o store.Object, name store.Key, is bool) error {
	if !is {
		cf.desired.index.Calico().DelNetworkSet(name.Namespace, name.Name)
		return nil
	}
	s, err := calico.NetworkSet(o)
	if s != nil { // one that cannot be read leaves its last version, as a policy does
		cf.desired.index.Calico().SetNetworkSet(*s)
	}
	return err
}

func (cf *calicoFeed) handleSliceLocked(o store.Object, gone bool) error {
	if gone {
		cf.desired.index.Calico().DelEndpointSlice(o.Key.Namespace, o.Key.Name)
		return nil
	}
	s, err := o.EndpointSlice()
	if err == nil {
		cf.desired.index.Calico().SetEndpointSlice(s)
	}
	return err
}

func (cf *calicoFeed) handleAccountLocked(o store.Object, gone bool) error {
	if gone {
		cf.desired.index.Calico().DelServiceAccount(o.Key.Namespace, o.Key.Name)
		return nil
	}
	a, err := o.ServiceAccount()
	if err == nil {
		cf.desired.index.Calico().SetServiceAccount(a)
	}
	return err
}
