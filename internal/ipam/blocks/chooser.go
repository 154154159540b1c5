// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// chooser tells which addresses of which pools an attachment is to have, by its configuration and what it wishes. It gives none.
type chooser struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock
	mem   *memory

	confs confs
	// cluster are the configurations of the cluster's network that may come, in a cluster of so many nodes. These, too, are under
	// the memory's lock.
	cluster []clusterConf
	nodes   int
	serving bool // somebody asked for addresses of the cluster's network
}

// clusterWants says which addresses an attachment is to have: for each the pools that may give it, the best first. STATUS
// asks without a container: it is a pod of any namespace, lest a node be unfit whose pools all select some.
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
				return nil, ipam.Invalid("ask for one IPv4 and one IPv6 address at most", "ipAddrs: %s and %s are of one family", b, a)
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
	return want{}, ipam.Invalid("choose an address of a pool, or make a pool that has it", "ipAddrs: address %s is in no pool of the cluster's network", a)
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
			return nil, model.Faultf(model.CodeTryAgain, "make an AddressPool with an assignmentMode, or name another one", "%s: there is no pool %q in the cluster's network", where, word)
		}
		if !slices.ContainsFunc(of.Regions, func(r model.AddressRegion) bool { return r.CIDR.Addr().Is4() == (f == model.IPv4) }) {
			return nil, ipam.Invalid("name a pool that has", "%s: pool %q has no %s addresses", where, of.Name, f)
		}
		if !of.Allows(use) {
			refused = append(refused, fmt.Sprintf("pool %q is not for the use %s (allowedUses %s)", of.Name, use, uses(of.AllowedUses)))
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
		of := slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Addr().Is4() == (f == model.IPv4) })
		if why := ch.refusal(p); of && why != "" {
			refused = append(refused, fmt.Sprintf("pool %q: %s", p.Name, why))
		}
	}
	if len(refused) == 0 {
		return nil, model.Faultf(model.CodeTryAgain, "make an AddressPool with assignmentMode: Automatic", "%s address: no pool of the cluster's network has any", f)
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
