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
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// poolSelector selects the pools and addresses that may serve an attachment, by its configuration and its pod's
// annotations. It allocates none.
type poolSelector struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock
	state *nodeState

	// cluster are the expected configurations of the cluster's network; nodes is the cluster's number of nodes. The
	// state's mutex protects these and serving.
	cluster []poolconf.Cluster
	nodes   int
	serving bool // an address of the cluster's network was requested
}

// clusterWants returns the addresses that an attachment needs, each as a list of pools that may serve it, the best
// first. STATUS has no container: it counts as a pod of any namespace, because a node whose pools all select namespaces
// is still ready.
func (ps *poolSelector) clusterWants(c poolconf.Cluster, req ipam.Request) ([][]poolconf.Want, error) {
	ps.state.mu.Lock()
	defer ps.state.mu.Unlock()
	podRequest := req.PodRequest
	specific := slices.Concat(podRequest.Addrs, c.Requested)
	if len(podRequest.Addrs) > 0 {
		specific = podRequest.Addrs
	}
	out, err := ps.specificWants(specific)
	if err != nil || len(specific) > 0 && len(podRequest.Families) == 0 {
		return out, err
	}
	families := c.Families
	if len(podRequest.Families) > 0 {
		families = podRequest.Families
	}
	for _, f := range families {
		if slices.ContainsFunc(specific, func(a netip.Addr) bool { return a.Is6() == (f == model.IPv6) }) {
			continue
		}
		words, where := c.Pools[f], "ipam.ipv4_pools"
		if f == model.IPv6 {
			where = "ipam.ipv6_pools"
		}
		switch {
		case f == model.IPv4 && len(podRequest.Pools4) > 0:
			words, where = podRequest.Pools4, "annotation ipv4pools"
		case f == model.IPv6 && len(podRequest.Pools6) > 0:
			words, where = podRequest.Pools6, "annotation ipv6pools"
		case f != model.IPv4 && f != model.IPv6:
			return nil, ipam.Invalid(`"IPv4" or "IPv6"`, "annotation ipFamilies: %q is no family", f)
		}
		var wants []poolconf.Want
		if len(words) > 0 {
			wants, err = ps.named(f, words, where, useOf(podRequest))
		} else {
			wants, err = ps.automatic(f, req)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, wants)
	}
	return out, nil
}

func useOf(w model.AddressRequest) model.AddressUse {
	if w.Use == "" {
		return model.UseWorkload
	}
	return w.Use
}

// specificWants returns wants of specific addresses. The selectors of their pools do not apply.
func (ps *poolSelector) specificWants(addrs []netip.Addr) ([][]poolconf.Want, error) {
	var out [][]poolconf.Want
	for i, a := range addrs {
		for _, b := range addrs[:i] {
			if a.Is4() == b.Is4() {
				return nil, ipam.Invalid("ask for one IPv4 and one IPv6 address at most",
					"ipAddrs: %s and %s are of one family", b, a)
			}
		}
		w, err := ps.specificWant(a)
		if err != nil {
			return nil, err
		}
		out = append(out, []poolconf.Want{w})
	}
	return out, nil
}

func (ps *poolSelector) specificWant(a netip.Addr) (poolconf.Want, error) {
	family := model.IPv4
	if a.Is6() {
		family = model.IPv6
	}
	for _, c := range ps.state.catalog.allocatable() {
		if w, ok := c.want(family); ok && addrspan.In(w.Spans, a) {
			w.Addr, w.Field = a, "ipAddrs"
			return w, nil
		}
	}
	for _, p := range ps.state.catalog.all() {
		if slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(a) }) {
			return poolconf.Want{}, model.Errorf(model.CodeTryAgain, "choose an address of another pool",
				"ipAddrs: address %s is in pool %q, which is not allocatable: %s", a, p.Name, ps.refusalLocked(p))
		}
	}
	return poolconf.Want{}, ipam.Invalid("choose an address of a pool, or create a pool that has it",
		"ipAddrs: address %s is in no pool of the cluster's network", a)
}

// named returns the wants for pools that are requested by name. Their selectors and their assignmentMode do not apply.
func (ps *poolSelector) named(f model.IPFamily, words []string, where string, use model.AddressUse) ([]poolconf.Want, error) {
	var out []poolconf.Want
	var refused []string
	for _, word := range words {
		var of *model.AddressPool
		for _, p := range ps.state.catalog.all() {
			if matchesPool(p, word) {
				of = &p
				break
			}
		}
		if of == nil {
			return nil, model.Errorf(model.CodeTryAgain, "create an AddressPool with an assignmentMode, or name another one",
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
		i := slices.IndexFunc(ps.state.catalog.allocatable(), func(c choice) bool { return c.Name == of.Name })
		if i < 0 {
			refused = append(refused, fmt.Sprintf("pool %q is not allocatable: %s", of.Name, ps.refusalLocked(*of)))
			continue
		}
		w, _ := ps.state.catalog.allocatable()[i].want(f)
		out = append(out, w)
	}
	if len(out) == 0 {
		return nil, model.Errorf(model.CodeTryAgain, "name another pool", "%s: %s", where, strings.Join(refused, "; "))
	}
	return out, nil
}

// automatic returns the wants for a pod that requests no pool.
func (ps *poolSelector) automatic(f model.IPFamily, req ipam.Request) ([]poolconf.Want, error) {
	var out []poolconf.Want
	var refused []string
	labels, known := map[string]string(nil), true
	if ps.cfg.Labels != nil {
		labels, known = ps.cfg.Labels()
	}
	for _, c := range ps.state.catalog.allocatable() {
		w, has := c.want(f)
		if !has {
			continue
		}
		if why := c.refuses(req, labels, known); why != "" {
			refused = append(refused, fmt.Sprintf("pool %q: %s", c.Name, why))
			continue
		}
		out = append(out, w)
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, p := range ps.state.catalog.all() {
		of := slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool {
			return r.CIDR.Addr().Is4() == (f == model.IPv4)
		})
		if why := ps.refusalLocked(p); of && why != "" {
			refused = append(refused, fmt.Sprintf("pool %q: %s", p.Name, why))
		}
	}
	if len(refused) == 0 {
		return nil, model.Errorf(model.CodeTryAgain, "create an AddressPool with assignmentMode: Automatic",
			"%s address: no pool of the cluster's network has any", f)
	}
	const most = 5
	if more := len(refused) - most; more > 0 {
		refused = append(refused[:most], fmt.Sprintf("and %d more", more))
	}
	return nil, model.Errorf(model.CodeTryAgain, "change a pool, or name one in the pod's annotation",
		"%s address: no pool is for this pod: %s", f, strings.Join(refused, "; "))
}

// refuses returns why a pool does not serve a pod that does not request it; empty: it does.
func (c choice) refuses(req ipam.Request, labels map[string]string, known bool) string {
	w, use := req.PodRequest, useOf(req.PodRequest)
	ofPod := use == model.UseWorkload && req.ContainerID != ""
	switch {
	case c.AssignmentMode != model.AssignAutomatic:
		return "it serves only pods that request it (assignmentMode " + string(c.AssignmentMode) + ")"
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

// refusalLocked returns why a pool is not allocatable; empty: it is.
func (ps *poolSelector) refusalLocked(p model.AddressPool) string {
	return ps.state.catalog.refusal(p.Name)
}

func uses(all []model.AddressUse) string {
	var words []string
	for _, u := range all {
		words = append(words, string(u))
	}
	return strings.Join(words, ", ")
}

// claimRequest adds the addresses or pools of the claim to what the pod requests.
func (ps *poolSelector) claimRequest(c addressclaims.Claim, w model.AddressRequest) (model.AddressRequest, error) {
	if c.ID == "" {
		return w, nil
	}
	if len(w.Addrs) > 0 {
		return w, ipam.Invalid("leave one out", "%s and specific addresses exclude each other", c.ID)
	}
	if w.Addrs = c.Addrs; len(w.Addrs) > 0 || len(c.Pools) == 0 {
		return w, nil
	}
	w.Pools4, w.Pools6 = nil, nil
	ps.state.mu.Lock()
	defer ps.state.mu.Unlock()
	all := ps.state.catalog.all()
	for _, name := range c.Pools {
		i := slices.IndexFunc(all, func(p model.AddressPool) bool { return matchesPool(p, name) })
		if i < 0 {
			return w, ipam.Invalid("name a pool of the cluster's network", "%s: spec.pools: there is no pool %q", c.ID, name)
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

// wantsFor returns the wants of an attachment, by its claim if it has one.
func (ps *poolSelector) wantsFor(conf poolconf.Cluster, req ipam.Request, claim addressclaims.Claim) ([][]poolconf.Want, error) {
	if claim.VM != nil {
		return ps.vmWants(conf, req, claim)
	}
	var err error
	if req.PodRequest, err = ps.claimRequest(claim, req.PodRequest); err != nil {
		return nil, err
	}
	return ps.clusterWants(conf, req)
}

// vmWants returns the wants of a VM's attachment: the addresses of its claim, and where the claim has none of a family,
// or no pool has its address any more, the same as for a pod.
func (ps *poolSelector) vmWants(conf poolconf.Cluster, req ipam.Request, c addressclaims.Claim) ([][]poolconf.Want, error) {
	if len(req.PodRequest.Addrs)+len(conf.Requested) > 0 { // an explicit request wins
		return ps.clusterWants(conf, req)
	}
	families := conf.Families
	if len(req.PodRequest.Families) > 0 {
		families = req.PodRequest.Families
	}
	var out [][]poolconf.Want
	for _, f := range families {
		i := slices.IndexFunc(c.Addrs, func(a netip.Addr) bool { return a.Is4() == (f == model.IPv4) })
		if i >= 0 {
			ps.state.mu.Lock()
			w, err := ps.specificWant(c.Addrs[i])
			ps.state.mu.Unlock()
			if err == nil {
				out = append(out, []poolconf.Want{w})
				continue
			}
			ps.cfg.Log.Warn("VM loses its address", "claim", c.ID,
				"address", c.Addrs[i].String(), "err", err)
		}
		req.PodRequest.Families = []model.IPFamily{f}
		some, err := ps.clusterWants(conf, req)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// loadPools makes sure that the pools of the cluster's network are known. Only the first call lists them.
func (ps *poolSelector) loadPools(ctx context.Context) error {
	ps.state.mu.Lock()
	known := ps.state.catalog.known
	ps.serving = true
	if !ps.state.used {
		ps.state.used = true
		ps.kick.Notify()
	}
	ps.state.mu.Unlock()
	if known {
		return nil
	}
	if ps.cfg.Objects == nil {
		return model.Errorf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"addresses of a pool need a datastore, and this agent has none")
	}
	all, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
		return ps.cfg.Objects.List(ctx, store.AddressPools())
	})
	if err != nil {
		return store.Unreachable("list of pools", err)
	}
	ps.state.mu.Lock()
	defer ps.state.mu.Unlock()
	ps.state.catalog.addListed(all)
	ps.state.unsaved = true
	ps.kick.Notify()
	return nil
}
