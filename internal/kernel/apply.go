// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// manyTunnels is the number of neighbors and forwarding entries above which their requests are sent as they are encoded.
const manyTunnels = 1000

// applyTries bounds how often an Apply reads again after losing a race with another process.
const applyTries = 8

// Apply makes the objects that f names as f describes them, and touches nothing else. It is idempotent: a second Apply
// writes nothing. When it fails, the changes made so far stay; Remove undoes them. Errors name the object and wrap
// ErrForeign or ErrExists when another program owns an object of a wanted name, ErrMissing when a link is needed that f
// does not make, ErrGone when the pod's namespace is needed and does not exist.
func (s Spaces) Apply(ctx context.Context, f state.Fragment) error {
	if s.Pod == nil && !f.Pod.Empty() {
		return fmt.Errorf("fragment %s: pod: %w", f.Owner, ErrGone)
	}
	var err error
	for range applyTries {
		a := &apply{spaces: s, effects: f.Effects, host: newView(state.Host, s.Host, f.Host), pod: newView(state.Pod, s.Pod, f.Pod)}
		a.host.also, a.pod.also = parents(f, state.Host), parents(f, state.Pod)
		if err = a.run(ctx); !errors.Is(err, errRaced) {
			return a.host.settings.vlans.explain(err)
		}
	}
	return err
}

// apply is one running Apply.
type apply struct {
	spaces    Spaces
	effects   []state.Effect
	host, pod *view
	// peersUp is set once the node's ends of the pod's links are up.
	peersUp bool
}

func (a *apply) run(ctx context.Context) error {
	var errs []error
	for _, v := range []*view{a.host, a.pod} {
		if v.conn != nil {
			errs = append(errs, in(v.name, v.sysctls.writeGlobals()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		a.makeLinks, a.enslave, a.hostSettings, a.filters, a.podBatch, a.hostBatch, a.settle,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if a.host.settings.ipv6Reset || a.pod.settings.ipv6Reset {
		return fmt.Errorf("IPv6 settings of a link were reset with its MTU: %w", errRaced)
	}
	return a.spaces.effects(ctx, a.effects, state.OnApply)
}

// hostSettings reads the existing links' state, then writes those settings of the node's links that a link accepts
// while it is down.
func (a *apply) hostSettings(ctx context.Context) error {
	if err := errors.Join(a.host.readAll(ctx), a.pod.readAll(ctx)); err != nil {
		return err
	}
	batch, err := a.host.settingsBatch()
	if err != nil {
		return in(state.Host, err)
	}
	batch = append(batch, a.host.settings.upBatch(func(l state.Link) bool { return l.Peer == nil })...)
	batch = append(batch, a.host.addrs.batch()...)
	if err := a.host.conn.rtnl.Send(ctx, batch); err != nil {
		return in(state.Host, err)
	}
	return a.host.writeLinks(ctx)
}

// filters commits nft, iptables and firewalld zones, before any packet can pass.
func (a *apply) filters(ctx context.Context) error {
	for _, v := range []*view{a.host, a.pod} {
		if err := v.filters.apply(ctx); err != nil {
			return in(v.name, err)
		}
	}
	return nil
}

// podBatch writes the pod's side in one batch. The kernel refuses an IPv6 address (EACCES) when IPv6 is disabled on the
// link: then the link is read, and IPv6 enabled.
func (a *apply) podBatch(ctx context.Context) error {
	if a.pod.conn == nil {
		return nil
	}
	if err := a.pod.writeLinks(ctx); err != nil {
		return err
	}
	batch, err := a.pod.settingsBatch()
	if err != nil {
		return in(state.Pod, err)
	}
	batch = append(batch, a.pod.settings.upBatch(func(state.Link) bool { return true })...)
	if probes := a.probes(); len(probes) > 0 {
		if err := a.probe(ctx, batch, probes); err != nil {
			return err
		}
		batch = nil
	}
	batch = append(batch, a.pod.addrs.batch()...)
	err = a.pod.lastBatch(ctx, batch)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	if err := errors.Join(a.pod.readLinks(ctx), in(state.Pod, a.pod.sysctls.enableIPv6(a.pod.want.Addrs))); err != nil {
		return err
	}
	return a.pod.lastBatch(ctx, a.pod.addrs.batch())
}

// hostBatch is the last batch: it brings the node's ends up, and packets flow.
func (a *apply) hostBatch(ctx context.Context) error {
	if a.peersUp {
		return a.host.lastBatch(ctx, nil)
	}
	return a.host.lastBatch(ctx, a.host.peersUpBatch())
}

// peersUpBatch returns the requests that bring the node's ends of the pod's links up.
func (v *view) peersUpBatch() []*rtnl.Message {
	return v.settings.upBatch(func(l state.Link) bool { return l.Peer != nil })
}

// settingsBatch returns the requests for link settings that differ, and for everything else that a link accepts while
// it is down.
func (v *view) settingsBatch() ([]*rtnl.Message, error) {
	batch, readdressed, err := v.settings.batch()
	if err != nil {
		return nil, err
	}
	for _, index := range readdressed {
		v.neighs.forget(index)
	}
	carried, err := v.sysctls.linkBatch()
	if err != nil {
		return nil, err
	}
	qdiscs, err := v.qdiscs.batch()
	return slices.Concat(batch, v.settings.vlans.batch(), carried, qdiscs), err
}

// writeLinks writes the properties of links that no rtnetlink message contains: settings in files, checksum offload,
// joins.
func (v *view) writeLinks(ctx context.Context) error {
	return in(v.name, errors.Join(v.sysctls.write(aboutLink), v.checksums.write(), v.joins.make(ctx)))
}

// lastBatch sends batch, followed by the neighbors, routes and rules.
func (v *view) lastBatch(ctx context.Context, batch []*rtnl.Message) error {
	routes, err := v.routes.batch()
	if err != nil {
		return in(v.name, err)
	}
	tunnels := []iter.Seq[*rtnl.Message]{v.neighs.missing(), v.fdbs.missing()}
	var refused error
	if len(v.neighs.want)+len(v.fdbs.want) > manyTunnels { // not all requests in memory at once
		refused = v.conn.rtnl.Send(ctx, batch)
		for _, requests := range tunnels {
			refused = errors.Join(refused, v.conn.rtnl.SendEach(ctx, requests))
		}
		batch, tunnels = nil, nil
	}
	for _, requests := range tunnels {
		batch = slices.AppendSeq(batch, requests)
	}
	batch = slices.Concat(batch, routes, v.rules.batch())
	if v.name == state.Host {
		batch = append(batch, v.settings.readBatch()...)
	}
	return in(v.name, errors.Join(refused, v.routes.resolveConflicts(ctx, v.conn.rtnl.Send(ctx, batch))))
}
