// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// chooser tells which addresses of which pools an attachment is to have, by its configuration and what it wishes. It
// gives none.
type chooser struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock
	mem   *memory

	confs confs
	// cluster are the configurations of the cluster's network that may come, in a cluster of so many nodes. These, too,
	// are under the memory's lock.
	cluster []clusterConf
	nodes   int
	serving bool // somebody asked for addresses of the cluster's network
}

// clusterWants says which addresses an attachment is to have: for each the pools that may give it, the best first.
// STATUS asks without a container: it is a pod of any namespace, lest a node be unfit whose pools all select some.
func (ch *chooser) clusterWants(c clusterConf, ask ipam.Ask) ([][]want, error) {
	ch.mem.mu.Lock()
	defer ch.mem.mu.Unlock()
	wishes := ask.Wishes
	certain := slices.Concat(wishes.Addrs, c.requested)
	if len(wishes.Addrs) > 0 {
		certain = wishes.Addrs
	}
	if len(certain) > 0 {
		return ch.certainWants(certain)
	}
	families := c.families
	if len(wishes.Families) > 0 {
		families = wishes.Families
	}
	var out [][]want
	for _, f := range families {
		words, where := c.pools[f], "ipam.ipv4_pools"
		if f == model.IPv6 {
			where = "ipam.ipv6_pools"
		}
		switch {
		case f == model.IPv4 && len(wishes.Pools4) > 0:
			words, where = wishes.Pools4, "annotation ipv4pools"
		case f == model.IPv6 && len(wishes.Pools6) > 0:
			words, where = wishes.Pools6, "annotation ipv6pools"
		case f != model.IPv4 && f != model.IPv6:
			return nil, ipam.Invalid(`"IPv4" or "IPv6"`, "annotation ipFamilies: %q is no family", f)
		}
		var wants []want
		var err error
		if len(words) > 0 {
			wants, err = ch.asked(f, words, where, useOf(wishes))
		} else {
			wants, err = ch.automatic(f, ask)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, wants)
	}
	return out, nil
}

func useOf(w model.AddressWishes) model.AddressUse {
	if w.Use == "" {
		return model.UseWorkload
	}
	return w.Use
}

// certainWants are those of addresses that were named. Which nodes and namespaces their pools select does not matter.
func (ch *chooser) certainWants(addrs []netip.Addr) ([][]want, error) {
	var out [][]want
	for i, a := range addrs {
		for _, b := range addrs[:i] {
			if a.Is4() == b.Is4() {
				return nil, ipam.Invalid("ask for one IPv4 and one IPv6 address at most",
					"ipAddrs: %s and %s are of one family", b, a)
			}
		}
		w, err := ch.certainWant(a)
		if err != nil {
			return nil, err
		}
		out = append(out, []want{w})
	}
	return out, nil
}

func (ch *chooser) certainWant(a netip.Addr) (want, error) {
	family := model.IPv4
	if a.Is6() {
		family = model.IPv6
	}
	for _, c := range ch.mem.catalog.offer() {
		if w, ok := c.want(family); ok && inSpans(w.spans, a) {
			w.addr, w.field = a, "ipAddrs"
			return w, nil
		}
	}
	for _, p := range ch.mem.catalog.all() {
		if slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(a) }) {
			return want{}, model.Faultf(model.CodeTryAgain, "choose an address of another pool",
				"ipAddrs: address %s is in pool %q, which gives none: %s", a, p.Name, ch.refusal(p))
		}
	}
	return want{}, ipam.Invalid("choose an address of a pool, or make a pool that has it",
		"ipAddrs: address %s is in no pool of the cluster's network", a)
}

// asked are the pools that somebody names. Their selectors and their mode do not matter.
func (ch *chooser) asked(f model.IPFamily, words []string, where string, use model.AddressUse) ([]want, error) {
	var out []want
	var refused []string
	for _, word := range words {
		var of *model.AddressPool
		for _, p := range ch.mem.catalog.all() {
			if called(p, word) {
				of = &p
				break
			}
		}
		if of == nil {
			return nil, model.Faultf(model.CodeTryAgain, "make an AddressPool with an assignmentMode, or name another one",
				"%s: there is no pool %q in the cluster's network", where, word)
		}
		if !slices.ContainsFunc(of.Regions, func(r model.AddressRegion) bool {
			return r.CIDR.Addr().Is4() == (f == model.IPv4)
		}) {
			return nil, ipam.Invalid("name a pool that has", "%s: pool %q has no %s addresses", where, of.Name, f)
		}
		if !of.Allows(use) {
			refused = append(refused,
				fmt.Sprintf("pool %q is not for the use %s (allowedUses %s)", of.Name, use, uses(of.AllowedUses)))
			continue
		}
		i := slices.IndexFunc(ch.mem.catalog.offer(), func(c choice) bool { return c.Name == of.Name })
		if i < 0 {
			refused = append(refused, fmt.Sprintf("pool %q gives no addresses: %s", of.Name, ch.refusal(*of)))
			continue
		}
		w, _ := ch.mem.catalog.offer()[i].want(f)
		out = append(out, w)
	}
	if len(out) == 0 {
		return nil, model.Faultf(model.CodeTryAgain, "name another pool", "%s: %s", where, strings.Join(refused, "; "))
	}
	return out, nil
}

// automatic are the pools for a pod that asks for none.
func (ch *chooser) automatic(f model.IPFamily, ask ipam.Ask) ([]want, error) {
	var out []want
	var refused []string
	labels, known := map[string]string(nil), true
	if ch.cfg.Labels != nil {
		labels, known = ch.cfg.Labels()
	}
	for _, c := range ch.mem.catalog.offer() {
		w, has := c.want(f)
		if !has {
			continue
		}
		if why := c.refuses(ask, labels, known); why != "" {
			refused = append(refused, fmt.Sprintf("pool %q: %s", c.Name, why))
			continue
		}
		out = append(out, w)
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, p := range ch.mem.catalog.all() {
		of := slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool {
			return r.CIDR.Addr().Is4() == (f == model.IPv4)
		})
		if why := ch.refusal(p); of && why != "" {
			refused = append(refused, fmt.Sprintf("pool %q: %s", p.Name, why))
		}
	}
	if len(refused) == 0 {
		return nil, model.Faultf(model.CodeTryAgain, "make an AddressPool with assignmentMode: Automatic",
			"%s address: no pool of the cluster's network has any", f)
	}
	const most = 5
	if more := len(refused) - most; more > 0 {
		refused = append(refused[:most], fmt.Sprintf("and %d more", more))
	}
	return nil, model.Faultf(model.CodeTryAgain, "change a pool, or name one in the pod's annotation",
		"%s address: no pool is for this pod: %s", f, strings.Join(refused, "; "))
}

// refuses says why a pool gives nothing to a pod that does not ask for it; empty: it does.
func (c choice) refuses(ask ipam.Ask, labels map[string]string, known bool) string {
	w, use := ask.Wishes, useOf(ask.Wishes)
	ofPod := use == model.UseWorkload && ask.ContainerID != ""
	switch {
	case c.AssignmentMode != model.AssignAutomatic:
		return "it gives addresses only to who asks for it (assignmentMode " + string(c.AssignmentMode) + ")"
	case !c.Allows(use):
		return "it is not for the use " + string(use) + " (allowedUses " + uses(c.AllowedUses) + ")"
	case c.NodeSelector != "" && !known:
		return "it selects nodes, and this node's labels are not known yet"
	case !c.nodes.Matches(labels):
		return "its nodeSelector " + c.NodeSelector + " does not select this node"
	case c.NamespaceSelector != "" && ofPod && w.NamespaceLabels == nil:
		return "it selects namespaces, and the labels of the pod's are not known"
	case ofPod && !c.namespaces.Matches(w.NamespaceLabels):
		return "its namespaceSelector " + c.NamespaceSelector + " does not select the pod's namespace"
	}
	return ""
}

// refusal says why a pool gives nothing to anybody; empty: it does. The caller holds the lock.
func (ch *chooser) refusal(p model.AddressPool) string {
	return ch.mem.catalog.refusal(p.Name)
}

func uses(all []model.AddressUse) string {
	var words []string
	for _, u := range all {
		words = append(words, string(u))
	}
	return strings.Join(words, ", ")
}

// wishes are an attachment's with what its claim says.
func (ch *chooser) claimWishes(c addressClaim, w model.AddressWishes) (model.AddressWishes, error) {
	if c.id == "" {
		return w, nil
	}
	if len(w.Addrs) > 0 {
		return w, ipam.Invalid("leave one out", "%s and certain addresses exclude each other", c.id)
	}
	if w.Addrs = c.addrs; len(w.Addrs) > 0 || len(c.pools) == 0 {
		return w, nil
	}
	w.Pools4, w.Pools6 = nil, nil
	ch.mem.mu.Lock()
	defer ch.mem.mu.Unlock()
	all := ch.mem.catalog.all()
	for _, name := range c.pools {
		i := slices.IndexFunc(all, func(p model.AddressPool) bool { return called(p, name) })
		if i < 0 {
			return w, ipam.Invalid("name a pool of the cluster's network", "%s: spec.pools: there is no pool %q", c.id, name)
		}
		for _, v6 := range []bool{false, true} {
			if !slices.ContainsFunc(all[i].Regions, func(r model.AddressRegion) bool { return r.CIDR.Addr().Is6() == v6 }) {
				continue
			}
			if v6 {
				w.Pools6 = append(w.Pools6, name)
			} else {
				w.Pools4 = append(w.Pools4, name)
			}
		}
	}
	return w, nil
}

// wantsFor are the addresses that an attachment is to have, by its claim if it has one.
func (ch *chooser) wantsFor(conf clusterConf, ask ipam.Ask, claim addressClaim) ([][]want, error) {
	if claim.machine != nil {
		return ch.machineWants(conf, ask, claim)
	}
	var err error
	if ask.Wishes, err = ch.claimWishes(claim, ask.Wishes); err != nil {
		return nil, err
	}
	return ch.clusterWants(conf, ask)
}

// machineWants are the wants of a machine's attachment: what was promised, and for a family of which nothing was, or
// whose address no pool gives any more, what any attachment would get.
func (ch *chooser) machineWants(conf clusterConf, ask ipam.Ask, c addressClaim) ([][]want, error) {
	if len(ask.Wishes.Addrs)+len(conf.requested) > 0 { // people have the last word
		return ch.clusterWants(conf, ask)
	}
	families := conf.families
	if len(ask.Wishes.Families) > 0 {
		families = ask.Wishes.Families
	}
	var out [][]want
	for _, f := range families {
		i := slices.IndexFunc(c.addrs, func(a netip.Addr) bool { return a.Is4() == (f == model.IPv4) })
		if i >= 0 {
			ch.mem.mu.Lock()
			w, err := ch.certainWant(c.addrs[i])
			ch.mem.mu.Unlock()
			if err == nil {
				out = append(out, []want{w})
				continue
			}
			ch.cfg.Log.Warn("address of a virtual machine cannot stay", "claim", c.id,
				"address", c.addrs[i].String(), "err", err)
		}
		ask.Wishes.Families = []model.IPFamily{f}
		some, err := ch.clusterWants(conf, ask)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// learn makes sure that the pools of the cluster's network are known. Only the first time somebody is asked.
func (ch *chooser) learn(ctx context.Context) error {
	ch.mem.mu.Lock()
	known := ch.mem.catalog.known
	ch.serving = true
	if !ch.mem.used {
		ch.mem.used = true
		ch.kick.Notify()
	}
	ch.mem.mu.Unlock()
	if known {
		return nil
	}
	if ch.cfg.Objects == nil {
		return model.Faultf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"addresses of a pool need the cluster's store, and this agent has none")
	}
	all, err := store.Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
		return ch.cfg.Objects.List(ctx, store.AddressPools())
	})
	if err != nil {
		return store.Unreachable("list of pools", err)
	}
	ch.mem.mu.Lock()
	defer ch.mem.mu.Unlock()
	ch.mem.catalog.listed(all)
	ch.mem.unsaved = true
	ch.kick.Notify()
	return nil
}
