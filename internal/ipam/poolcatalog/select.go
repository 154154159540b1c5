// SPDX-License-Identifier: Apache-2.0

package poolcatalog

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// Wants returns the addresses that an attachment needs, each as a list of pools that may serve it, the best first. The zero
// claim is none.
func (c *Catalog) Wants(conf poolconf.Cluster, req ipam.Request, claim addressclaims.Claim) ([][]poolconf.Want, error) {
	if claim.VM != nil {
		return c.vmWants(conf, req, claim)
	}
	var err error
	if req.PodRequest, err = c.claimRequest(claim, req.PodRequest); err != nil {
		return nil, err
	}
	return c.clusterWants(conf, req)
}

// clusterWants is Wants without a claim. STATUS has no container: it counts as a pod of any namespace, because a node whose pools all select namespaces
// is still ready.
func (c *Catalog) clusterWants(conf poolconf.Cluster, req ipam.Request) ([][]poolconf.Want, error) {
	podRequest := req.PodRequest
	specific := slices.Concat(podRequest.Addrs, conf.Requested)
	if len(podRequest.Addrs) > 0 {
		specific = podRequest.Addrs
	}
	out, err := c.specificWants(specific)
	if err != nil || len(specific) > 0 && len(podRequest.Families) == 0 {
		return out, err
	}
	families := conf.Families
	if len(podRequest.Families) > 0 {
		families = podRequest.Families
	}
	for _, f := range families {
		if slices.ContainsFunc(specific, func(a netip.Addr) bool { return a.Is6() == (f == model.IPv6) }) {
			continue
		}
		words, where := conf.Pools[f], "ipam.ipv4_pools"
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
			wants, err = c.named(f, words, where, useOf(podRequest))
		} else {
			wants, err = c.automatic(f, req)
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
func (c *Catalog) specificWants(addrs []netip.Addr) ([][]poolconf.Want, error) {
	var out [][]poolconf.Want
	for i, a := range addrs {
		for _, b := range addrs[:i] {
			if a.Is4() == b.Is4() {
				return nil, ipam.Invalid("ask for one IPv4 and one IPv6 address at most",
					"ipAddrs: %s and %s are of one family", b, a)
			}
		}
		w, err := c.specificWant(a)
		if err != nil {
			return nil, err
		}
		out = append(out, []poolconf.Want{w})
	}
	return out, nil
}

func (c *Catalog) specificWant(a netip.Addr) (poolconf.Want, error) {
	family := model.IPv4
	if a.Is6() {
		family = model.IPv6
	}
	for _, one := range c.allocatable() {
		if w, ok := one.want(family); ok && addrspan.In(w.Spans, a) {
			w.Addr, w.Field = a, "ipAddrs"
			return w, nil
		}
	}
	for _, p := range c.All() {
		if slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(a) }) {
			return poolconf.Want{}, model.Errorf(model.CodeTryAgain, "choose an address of another pool",
				"ipAddrs: address %s is in pool %q, which is not allocatable: %s", a, p.Name, c.refusal(p.Name))
		}
	}
	return poolconf.Want{}, ipam.Invalid("choose an address of a pool, or create a pool that has it",
		"ipAddrs: address %s is in no pool of the cluster's network", a)
}

// named returns the wants for pools that are requested by name. Their selectors and their assignmentMode do not apply.
func (c *Catalog) named(f model.IPFamily, words []string, where string, use model.AddressUse) ([]poolconf.Want, error) {
	var out []poolconf.Want
	var refused []string
	for _, word := range words {
		var of *model.AddressPool
		for _, p := range c.All() {
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
		i := slices.IndexFunc(c.allocatable(), func(one choice) bool { return one.Name == of.Name })
		if i < 0 {
			refused = append(refused, fmt.Sprintf("pool %q is not allocatable: %s", of.Name, c.refusal(of.Name)))
			continue
		}
		w, _ := c.allocatable()[i].want(f)
		out = append(out, w)
	}
	if len(out) == 0 {
		return nil, model.Errorf(model.CodeTryAgain, "name another pool", "%s: %s", where, strings.Join(refused, "; "))
	}
	return out, nil
}

// automatic returns the wants for a pod that requests no pool.
func (c *Catalog) automatic(f model.IPFamily, req ipam.Request) ([]poolconf.Want, error) {
	var out []poolconf.Want
	var refused []string
	labels, known := map[string]string(nil), true
	if c.labels != nil {
		labels, known = c.labels()
	}
	for _, one := range c.allocatable() {
		w, has := one.want(f)
		if !has {
			continue
		}
		if why := one.refuses(req, labels, known); why != "" {
			refused = append(refused, fmt.Sprintf("pool %q: %s", one.Name, why))
			continue
		}
		out = append(out, w)
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, p := range c.All() {
		of := slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool {
			return r.CIDR.Addr().Is4() == (f == model.IPv4)
		})
		if why := c.refusal(p.Name); of && why != "" {
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

func uses(all []model.AddressUse) string {
	var words []string
	for _, u := range all {
		words = append(words, string(u))
	}
	return strings.Join(words, ", ")
}

// claimRequest adds the addresses or pools of the claim to what the pod requests.
func (c *Catalog) claimRequest(claim addressclaims.Claim, w model.AddressRequest) (model.AddressRequest, error) {
	if claim.ID == "" {
		return w, nil
	}
	if len(w.Addrs) > 0 {
		return w, ipam.Invalid("leave one out", "%s and specific addresses exclude each other", claim.ID)
	}
	if w.Addrs = claim.Addrs; len(w.Addrs) > 0 || len(claim.Pools) == 0 {
		return w, nil
	}
	w.Pools4, w.Pools6 = nil, nil
	all := c.All()
	for _, name := range claim.Pools {
		i := slices.IndexFunc(all, func(p model.AddressPool) bool { return matchesPool(p, name) })
		if i < 0 {
			return w, ipam.Invalid("name a pool of the cluster's network", "%s: spec.pools: there is no pool %q", claim.ID, name)
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

// vmWants returns the wants of a VM's attachment: the addresses of its claim, and where the claim has none of a family,
// or no pool has its address any more, the same as for a pod.
func (c *Catalog) vmWants(conf poolconf.Cluster, req ipam.Request, claim addressclaims.Claim) ([][]poolconf.Want, error) {
	if len(req.PodRequest.Addrs)+len(conf.Requested) > 0 { // an explicit request wins
		return c.clusterWants(conf, req)
	}
	families := conf.Families
	if len(req.PodRequest.Families) > 0 {
		families = req.PodRequest.Families
	}
	var out [][]poolconf.Want
	for _, f := range families {
		i := slices.IndexFunc(claim.Addrs, func(a netip.Addr) bool { return a.Is4() == (f == model.IPv4) })
		if i >= 0 {
			w, err := c.specificWant(claim.Addrs[i])
			if err == nil {
				out = append(out, []poolconf.Want{w})
				continue
			}
			c.log.Warn("VM loses its address", "claim", claim.ID,
				"address", claim.Addrs[i].String(), "err", err)
		}
		req.PodRequest.Families = []model.IPFamily{f}
		some, err := c.clusterWants(conf, req)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// Expected returns the wants of a pod that requests no pool: of each family, the best pool.
func (c *Catalog) Expected(conf poolconf.Cluster) (wants []poolconf.Want) {
	for _, f := range conf.Families {
		var some []poolconf.Want
		var err error
		if words := conf.Pools[f]; len(words) > 0 {
			some, err = c.named(f, words, "", model.UseWorkload)
		} else {
			some, err = c.automatic(f, ipam.Request{})
		}
		if err == nil {
			wants = append(wants, some[0])
		}
	}
	return wants
}
