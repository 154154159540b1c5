// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// findPublic finds the node's configured external addresses.
func (d *daemon) findPublic(ctx context.Context) (err error) {
	if d.public, err = d.mgr.external(ctx); err != nil {
		return err
	}
	for _, a := range d.cfg.public() {
		if !hasFamily(d.public, a) {
			d.public = append(d.public, a)
		}
	}
	return nil
}

// underlay finds the interface to the other nodes.
func (d *daemon) underlay(ctx context.Context) (Underlay, error) {
	spaces := kernel.Spaces{Host: d.host}
	m := hostLinks{defaults: map[int]string{}}
	var err error
	if m.Space, err = d.host.ReadAll(ctx); err != nil {
		return Underlay{}, err
	}
	questions := d.cfg.questions()
	var all []state.Query
	for _, q := range questions {
		all = append(all, q)
	}
	answers, err := spaces.Observe(ctx, all)
	if err != nil {
		return Underlay{}, err
	}
	m.defaults[4], m.defaults[6] = answers[questions["4"]].Link.Name, answers[questions["6"]].Link.Name
	if q, ok := questions["reach"]; ok {
		m.reach = answers[q].Link.Name
	}
	return d.cfg.choose(m, d.families(), d.public)
}

func hasFamily(all []netip.Addr, a netip.Addr) bool {
	for _, b := range all {
		if b.Is4() == a.Is4() {
			return true
		}
	}
	return false
}

func (d *daemon) families() []int {
	var out []int
	for _, f := range []int{4, 6} {
		if d.conf.Family(f) {
			out = append(out, f)
		}
	}
	return out
}

// self returns the node itself for the mesh.
func (u Underlay) self(name string, subnets []netip.Prefix, had *model.Published) model.Node {
	n := model.Node{Name: name, Addrs: u.Addrs, PodCIDRs: subnets, Published: had}
	for i, a := range u.external() {
		if a != u.Addrs[i] {
			n.Public = append(n.Public, a)
		}
	}
	return n
}

// followAddresses chooses the interface again when it has lost an address, because the host was renumbered.
func (d *daemon) followAddresses(ctx context.Context, u Underlay, moved chan<- Underlay) error {
	for {
		select {
		case <-d.lost:
		case <-ctx.Done():
			return nil
		}
		d.mgr.renumbered() // the choice may need to read the Node object
		now := u
		if d.retry(ctx, "find the interface", func() (err error) { now, err = d.underlay(ctx); return err }) != nil {
			d.log.Error("interface to the other nodes is gone")
			continue
		}
		if now.Link == u.Link && slices.Equal(now.Addrs, u.Addrs) {
			continue // it is back
		}
		d.log.Info("interface changed", "interface", now.Link, "addresses", now.Addrs, "public", now.external(),
			"before", u.Addrs)
		u = now
		d.mgr.renumbered()
		select {
		case moved <- u:
		case <-ctx.Done():
		}
	}
}
