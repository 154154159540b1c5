// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// applyTries bounds how often an Apply looks again because somebody else was quicker.
const applyTries = 8

// Apply brings what f names to what f says and touches nothing else. It is idempotent: a second Apply writes nothing.
// When it fails, what was done so far stays; Remove undoes it. Errors name the object and wrap ErrForeign or ErrExists
// when a wanted place belongs to somebody else, ErrMissing when a link is needed that f does not make, ErrGone when the
// pod's namespace is needed and there is none.
func (s Spaces) Apply(ctx context.Context, f state.Fragment) error {
	if s.Pod == nil && !f.Pod.Empty() {
		return fmt.Errorf("fragment %s: pod: %w", f.Owner, ErrGone)
	}
	var err error
	for range applyTries {
		a := &apply{spaces: s, host: newView(state.Host, s.Host, f.Host), pod: newView(state.Pod, s.Pod, f.Pod)}
		a.host.also, a.pod.also = parents(f, state.Host), parents(f, state.Pod)
		if err = a.run(ctx, f.Effects); !errors.Is(err, errRaced) {
			return a.host.vlanError(err)
		}
	}
	return err
}

// apply is one Apply under way.
type apply struct {
	spaces    Spaces
	host, pod *view
}

func (a *apply) run(ctx context.Context, effects []state.Effect) error {
	if err := errors.Join(a.host.writeGlobals(), a.pod.writeGlobals()); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{a.makeLinks, a.enslave, a.hostSettings, a.rules, a.podBatch, a.hostBatch, a.settle} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if a.host.reborn || a.pod.reborn {
		return fmt.Errorf("IPv6 came back with the MTU: %w", errRaced)
	}
	return a.spaces.effects(ctx, effects, state.OnApply)
}

// hostSettings reads what the links of old hold, then writes the node's part that a link which is down accepts.
func (a *apply) hostSettings(ctx context.Context) error {
	if err := errors.Join(a.host.readAll(ctx), a.pod.readAll(ctx)); err != nil {
		return err
	}
	batch, err := a.host.settingsBatch()
	if err != nil {
		return in(state.Host, err)
	}
	batch = append(batch, a.host.upBatch(func(l state.Link) bool { return l.Peer == nil })...)
	batch = append(batch, a.host.addrBatch()...)
	if err := a.host.conn.rtnl.Send(ctx, batch); err != nil {
		return in(state.Host, err)
	}
	return errors.Join(a.host.writeSysctls(aboutLink), in(state.Host, a.host.writeChecksums()), a.host.joinLinks(ctx))
}

// rules commits nft: before anything can pass.
func (a *apply) rules(ctx context.Context) error {
	for _, v := range []*view{a.host, a.pod} {
		if err := v.applyIPTables(ctx); err != nil {
			return err
		}
		if err := v.applySources(ctx); err != nil {
			return err
		}
		if len(v.want.Tables) == 0 {
			continue
		}
		n, err := v.conn.tables()
		if err != nil {
			return in(v.name, err)
		}
		if err := n.Apply(ctx, v.want.Tables); err != nil {
			return in(v.name, fmt.Errorf("nft: %w", err))
		}
	}
	return nil
}

// podBatch is the pod's side in one batch. The kernel refuses an IPv6 address (EACCES) where somebody switched IPv6 off:
// then the link is looked at and IPv6 switched on.
func (a *apply) podBatch(ctx context.Context) error {
	if a.pod.conn == nil {
		return nil
	}
	if err := errors.Join(a.pod.writeSysctls(aboutLink), in(state.Pod, a.pod.writeChecksums()), a.pod.joinLinks(ctx)); err != nil {
		return err
	}
	batch, err := a.pod.settingsBatch()
	if err != nil {
		return in(state.Pod, err)
	}
	batch = append(batch, a.pod.upBatch(func(state.Link) bool { return true })...)
	batch = append(batch, a.pod.addrBatch()...)
	err = a.pod.lastBatch(ctx, batch)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	if err := errors.Join(a.pod.look(ctx), a.pod.enableIPv6()); err != nil {
		return err
	}
	return a.pod.lastBatch(ctx, a.pod.addrBatch())
}

// hostBatch is the last batch: the node's ends come up and packets flow.
func (a *apply) hostBatch(ctx context.Context) error {
	return a.host.lastBatch(ctx, a.host.upBatch(func(l state.Link) bool { return l.Peer != nil }))
}

// settingsBatch is what differs on the links, all but their administrative state, which comes last: the kernel looks at
// these settings when a link comes up.
func (v *view) settingsBatch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, l := range v.want.Links {
		have := v.links[l.Name]
		if c, ok := v.change(l, have); ok {
			const leastIPv6 = 1280
			if !c.MAC.IsZero() { // the kernel forgets all neighbours of a link that gets another address
				maps.DeleteFunc(v.neighs, func(_ neighPlace, n link.FoundNeigh) bool { return n.Index == have.Index })
			}
			v.reborn = v.reborn || c.MTU >= leastIPv6 && have.MTU > 0 && have.MTU < leastIPv6
			batch = append(batch, link.Set(have.Index, l.Name, c))
		}
		if v.portDiffers(l, have) { // of its own: the kernel looks at these before it looks at the master
			batch = append(batch, link.Set(have.Index, l.Name, link.Change{Port: l.Port}))
		}
		attrs, err := attrsBatch(l, have)
		if err != nil {
			return nil, err
		}
		batch = append(batch, attrs...)
	}
	settings, err := v.carry()
	if err != nil {
		return nil, err
	}
	qdiscs, err := v.qdiscBatch()
	return append(append(append(batch, v.vlanBatch()...), settings...), qdiscs...), err
}

func (v *view) upBatch(which func(state.Link) bool) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range v.want.Links {
		have := v.links[l.Name]
		if l.Up != nil && which(l) && differs(l.Up, have.Up) {
			batch = append(batch, link.SetUp(have.Index, l.Name, *l.Up))
			if *l.Up && l.Kind != "" {
				v.raised = append(v.raised, l)
			}
		}
	}
	return batch
}

// addrBatch takes off what must not be there, then adds. An address that differs is taken off first: flags of one that
// is there are not changed.
func (v *view) addrBatch() []*rtnl.Message {
	var gone, batch []*rtnl.Message
	for _, want := range v.want.Addrs {
		found, equal := v.hasAddr(want)
		if equal {
			continue
		}
		index := v.links[want.Link].Index
		if found != nil {
			gone = append(gone, link.DelAddr(found.Addr, index))
		}
		if want.Absent {
			continue
		}
		batch = append(batch, link.AddAddr(want, index))
		if want.Prefix.Addr().Is6() && !slices.Contains(v.fresh6, want.Link) {
			v.fresh6 = append(v.fresh6, want.Link)
		}
	}
	return append(gone, batch...)
}

// lastBatch sends the neighbours, routes and rules behind what is given.
func (v *view) lastBatch(ctx context.Context, batch []*rtnl.Message) error {
	for _, want := range v.want.Neighs {
		if _, equal := v.hasNeigh(want); !equal {
			batch = append(batch, link.AddNeigh(want, v.links[want.Link].Index))
		}
	}
	batch = append(batch, v.fdbBatch()...)
	routes, err := v.routeBatch()
	if err != nil {
		return in(v.name, err)
	}
	batch = append(batch, routes...)
	for _, want := range v.want.Rules {
		if !v.hasRule(want) {
			batch = append(batch, link.AddRule(want))
		}
	}
	if v.name == state.Host {
		batch = append(batch, v.heard()...)
	}
	return in(v.name, v.place(ctx, v.conn.rtnl.Send(ctx, batch)))
}
