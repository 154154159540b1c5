// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/interim/effect"
	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/interim/rtnl"
	"github.com/weft-net/weft/internal/kernel/interim/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// Apply brings what f names to what f says and touches nothing else. It is idempotent: a second Apply writes nothing.
// When it fails, what was done so far stays; Remove undoes it. Errors wrap ErrForeign when a wanted name belongs to
// somebody else, and then nothing was written; ErrMissing when a link is needed that f does not make.
func (s Spaces) Apply(ctx context.Context, f state.Fragment) error {
	if s.Pod == nil && !f.Pod.Empty() {
		return fmt.Errorf("fragment %s: pod namespace: %w", f.Owner, ErrMissing)
	}
	host, err := look(state.Host, s.Host, f.Host)
	if err != nil {
		return err
	}
	pod, err := look(state.Pod, s.Pod, f.Pod)
	if err != nil {
		return err
	}
	a := &apply{spaces: s, host: host, pod: pod}
	if err := errors.Join(host.foreign(), pod.foreign()); err != nil {
		return err
	}
	steps := []func(context.Context) error{a.makeLinks, a.settings, a.podBatch, a.hostBatch}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return a.effects(ctx, f.Effects)
}

// apply is one Apply under way.
type apply struct {
	spaces    Spaces
	host, pod *view
}

func (v *view) foreign() error {
	var errs []error
	for _, l := range v.want.Links {
		if have, ok := v.links[l.Name]; ok {
			errs = append(errs, foreign(l, have))
		}
	}
	return errors.Join(errs...)
}

// settings reads what the links of old hold, then writes the node's part that a link that is down accepts: addresses,
// sysctls, and nft as one transaction.
func (a *apply) settings(ctx context.Context) error {
	if err := errors.Join(a.host.readAll(ctx), a.pod.readAll(ctx)); err != nil {
		return err
	}
	batch := a.host.sharedUp()
	batch = append(batch, a.host.addrBatch()...)
	if err := a.host.conn.send(ctx, batch); err != nil {
		return err
	}
	for _, v := range []*view{a.host, a.pod} {
		if err := v.writeSysctls(); err != nil {
			return err
		}
		if len(v.want.Tables) == 0 || v.conn == nil {
			continue
		}
		n, err := v.conn.tables()
		if err != nil {
			return err
		}
		if err := n.Apply(ctx, v.want.Tables); err != nil {
			return fmt.Errorf("nft: %w", err)
		}
	}
	return nil
}

// podBatch is the pod's side in one batch.
func (a *apply) podBatch(ctx context.Context) error {
	if a.pod.conn == nil {
		return nil
	}
	batch := a.pod.upBatch(func(state.Link) bool { return true })
	batch = append(batch, a.pod.addrBatch()...)
	batch = append(batch, a.pod.neighBatch()...)
	rest, err := a.pod.routeBatch()
	if err != nil {
		return err
	}
	return a.pod.conn.send(ctx, append(batch, rest...), unix.EEXIST)
}

// hostBatch is the last batch: the node's ends come up and packets flow.
func (a *apply) hostBatch(ctx context.Context) error {
	batch := a.host.upBatch(func(l state.Link) bool { return !l.Shared })
	batch = append(batch, a.host.neighBatch()...)
	rest, err := a.host.routeBatch()
	if err != nil {
		return err
	}
	return a.host.conn.send(ctx, append(batch, rest...), unix.EEXIST)
}

func (v *view) sharedUp() []*rtnl.Message { return v.upBatch(func(l state.Link) bool { return l.Shared }) }

func (v *view) upBatch(which func(state.Link) bool) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range v.want.Links {
		have := v.links[l.Name]
		if l.Up != nil && which(l) && differs(l.Up, have.Up) {
			batch = append(batch, link.SetUp(have.Index, l.Name, *l.Up))
		}
	}
	return batch
}

func (v *view) addrBatch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range v.want.Addrs {
		found, equal := v.hasAddr(want)
		if equal {
			continue
		}
		index := v.links[want.Link].Index
		if found != nil {
			batch = append(batch, link.DelAddr(found.Addr, index))
		}
		batch = append(batch, link.AddAddr(want, index))
	}
	return batch
}

func (v *view) neighBatch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range v.want.Neighs {
		if _, equal := v.hasNeigh(want); !equal {
			batch = append(batch, link.AddNeigh(want, v.links[want.Link].Index))
		}
	}
	return batch
}

// routeBatch is the routes and rules. A route whose kind differs is taken away first: replacing matches less than all
// that identifies a route.
func (v *view) routeBatch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, want := range v.want.Routes {
		found, equal := v.hasRoute(want)
		if equal {
			continue
		}
		index := 0
		if want.Link != "" {
			l, ok := v.links[want.Link]
			if !ok {
				return nil, fmt.Errorf("%s: link %s %w", want, want.Link, ErrMissing)
			}
			index = l.Index
		}
		if found != nil {
			old := found.Route
			batch = append(batch, link.DelRoute(old, found.Index))
		}
		batch = append(batch, link.AddRoute(want, index))
	}
	for _, want := range v.want.Rules {
		if !v.hasRule(want) {
			batch = append(batch, link.AddRule(want))
		}
	}
	return batch, nil
}

func (v *view) writeSysctls() error {
	var pairs []sysctl.Pair
	for _, want := range v.want.Sysctls {
		have, equal := v.hasSysctl(want)
		if equal || v.inLinkMessage(want) {
			continue
		}
		if v.values[want.Name].Missing {
			return fmt.Errorf("sysctl %s: %s", want.Name, have)
		}
		pairs = append(pairs, sysctl.Pair{Name: want.Name, Value: want.Value})
	}
	if v.conn == nil {
		return nil
	}
	return sysctl.Write(v.conn.ns, pairs)
}

// riding are the settings of a link that travel in its own message.
func (v *view) riding(name string, c *link.Change) bool {
	any := false
	for _, s := range v.want.Sysctls {
		if s.Name == "net/ipv6/conf/"+name+"/addr_gen_mode" {
			mode, err := strconv.Atoi(s.Value)
			have, known := v.addrGenMode(s)
			if err == nil && (!known || have >= 0 && have != mode) {
				c.AddrGenMode, any = &mode, true
			}
			continue
		}
		on, id, ok := ridesWith(s)
		value, err := strconv.ParseUint(s.Value, 10, 32)
		if ok && on == name && v.made[name] && err == nil {
			if c.IPv4 == nil {
				c.IPv4 = map[uint16]uint32{}
			}
			c.IPv4[id], any = uint32(value), true
		}
	}
	return any
}

func (a *apply) effects(ctx context.Context, effects []state.Effect) error {
	for _, e := range effects {
		c := a.spaces.conn(e.Space)
		if c == nil {
			continue
		}
		if err := effect.Do(ctx, c.ns, e); err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
	}
	return nil
}
