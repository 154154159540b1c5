// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// removal is one Remove or Release under way.
type removal struct {
	host, pod *view
	// dying are the links that go, by space and name.
	dying map[state.SpaceName]map[string]bool
}

// Remove takes away everything that f names and that is not Shared, and waits until it is gone. Missing things are no
// error; a link of a wanted name that is foreign is left alone. Tables go after the links: what they keep a link from
// must not happen while it is still there.
func (s Spaces) Remove(ctx context.Context, f state.Fragment) error {
	r, err := s.doomed(ctx, f)
	if err != nil {
		return err
	}
	errs := []error{r.removeRest(ctx, r.pod, nil), r.removeRest(ctx, r.host, nil)}
	for _, v := range []*view{r.host, r.pod} {
		errs = append(errs, s.giveBack(ctx, v), in(v.name, v.delete(ctx, r.last(v))), r.leaveVRFs(ctx, v), v.renameBack(ctx))
	}
	return errors.Join(
		append(errs, r.pod.removeFilters(ctx), r.host.removeFilters(ctx), s.effects(ctx, f.Effects, state.OnRemove))...,
	)
}

// Release is Remove for a caller that must not wait 30 ms for each link. When it returns, what others can see is gone
// (rules, routes, addresses, traffic): the links are marked as dead and the node's ends down, in the reaper's group; a
// pod's end dies with its other end. A dead link keeps its name and its place in a bridge: taking them away would cost
// an RCU wait each, under the kernel's one lock, and all of a DEL is three of them. Observe does not see a dead link,
// and an Apply that needs its name deletes it first.
func (s Spaces) Release(ctx context.Context, f state.Fragment) error {
	r, err := s.doomed(ctx, f)
	if err != nil {
		return err
	}
	errs := []error{
		r.removeRest(ctx, r.pod, r.marks()),
		s.giveBack(ctx, r.pod), s.giveBack(ctx, r.host),
		in(state.Pod, r.pod.delete(ctx, r.last(r.pod))), r.leaveVRFs(ctx, r.pod), r.pod.renameBack(ctx),
	}
	var batch []*rtnl.Message
	for _, have := range r.last(r.host) {
		// Last of all in its namespace: from here on the reaper may take it at any moment.
		batch = append(batch, bury(have, state.Off()))
	}
	return errors.Join(append(errs, r.removeRest(ctx, r.host, batch), r.pod.removeFilters(ctx), r.host.removeFilters(ctx),
		s.effects(ctx, f.Effects, state.OnRemove))...)
}

// marks say of the pod's ends that they are dead; they go with their other ends.
func (r *removal) marks() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range r.links(r.pod) {
		if r.endsInHost(l) {
			batch = append(batch, bury(r.pod.links.found[l.Name], nil))
		}
	}
	return batch
}

// bury puts a link into the group of the dead, with a new administrative state in the same request if that is wanted.
func bury(have link.Found, up *bool) *rtnl.Message {
	group := uint32(Group)
	return link.Set(have.Index, have.Name, link.Change{Up: up, Group: &group}).Forgiving(enodev)
}

// clear deletes links that stand where the space wants links: dead ones, and the owner's own that must be made anew.
func (v *view) clear(ctx context.Context) error {
	var gone []link.Found
	for _, l := range v.want.Links {
		have, ok := v.links.found[l.Name]
		if ok && l.Kind != "" && (have.Dead() || l.Remade && foreign(l, have) == nil && fixed(l, have) || replaced(l, have)) {
			gone = append(gone, have)
			delete(v.links.found, l.Name)
		}
	}
	return in(v.name, v.delete(ctx, gone))
}

// doomed looks which of the links that f names are there and ours.
func (s Spaces) doomed(ctx context.Context, f state.Fragment) (*removal, error) {
	host, err := look(ctx, state.Host, s.Host, f.Host)
	if err != nil {
		return nil, err
	}
	pod, err := look(ctx, state.Pod, s.Pod, f.Pod)
	if err != nil {
		return nil, err
	}
	r := &removal{host: host, pod: pod, dying: map[state.SpaceName]map[string]bool{}}
	for _, v := range []*view{host, pod} {
		r.dying[v.name] = map[string]bool{}
		for _, l := range v.want.Links {
			have, ok := v.links.found[l.Name]
			r.dying[v.name][l.Name] = ok && !l.Shared && l.Kind != "" && foreign(l, have) == nil
		}
	}
	return r, nil
}

// links are the links of a space that go.
func (r *removal) links(v *view) []state.Link {
	var out []state.Link
	for _, l := range v.want.Links {
		if r.dying[v.name][l.Name] {
			out = append(out, l)
		}
	}
	return out
}

// endsInHost tells whether the other end of a pod's link goes as well, and the link with it.
func (r *removal) endsInHost(l state.Link) bool {
	return l.Peer != nil && l.Peer.Space == state.Host && r.dying[state.Host][l.Peer.Name] &&
		pairError(l, r.pod.links.found[l.Name], r.host.links.found) == nil
}

// last are the links to be deleted by request: not those that go with their other end.
func (r *removal) last(v *view) []link.Found {
	var out []link.Found
	for _, l := range r.links(v) {
		if v != r.pod || !r.endsInHost(l) {
			out = append(out, v.links.found[l.Name])
		}
	}
	return out
}

// delete deletes links: several as a group of their own, since each single one makes the kernel wait.
func (v *view) delete(ctx context.Context, links []link.Found) error {
	var batch []*rtnl.Message
	if len(links) == 1 {
		batch = append(batch, link.Delete(links[0].Index, links[0].Name).Forgiving(enodev))
	} else if len(links) > 1 {
		group := uint32(1<<31 + rand.IntN(1<<30))
		for _, l := range links {
			batch = append(batch, link.Set(l.Index, l.Name, link.Change{Group: &group}).Forgiving(enodev))
		}
		batch = append(batch, link.DeleteGroup(group))
	}
	if len(batch) == 0 {
		return nil
	}
	return v.conn.rtnl.Send(ctx, batch)
}

// removeRest sends the end of rules, routes, neighbors and addresses, and then what is given. What is on a link that
// goes is not taken away one by one, but for the node's addresses: they answer as long as they are there.
func (r *removal) removeRest(ctx context.Context, v *view, then []*rtnl.Message) error {
	if v.conn == nil {
		return nil
	}
	if err := in(
		v.name, v.joins.end(ctx, func(j state.Join) bool { return !r.anothers(v, j.Tap) || v.links.index(j.Tap) == 0 }),
	); err != nil {
		return err
	}
	batch, err := v.qdiscs.removal(ctx, func(name string) bool { return !r.dying[v.name][name] && !r.anothers(v, name) })
	if err != nil {
		return in(v.name, err)
	}
	stays := func(name string) (int, bool) {
		have, ok := v.links.found[name]
		return have.Index, ok && !r.dying[v.name][name] && !r.anothers(v, name)
	}
	batch = slices.Concat(batch, v.rules.removal(), v.routes.removal(stays), v.neighs.removal(stays),
		v.fdbs.removal(stays),
		v.addrs.removal(func(a state.Addr) bool {
			if _, ok := stays(a.Link); ok {
				return true
			}
			// Those of IPv6 go when the link goes down.
			return v == r.host && then != nil && a.Prefix.Addr().Is4() && !r.anothers(v, a.Link)
		}), then)
	return in(v.name, v.conn.rtnl.Send(ctx, batch))
}

// anothers tells whether a link of a name that the space gives to one of its own is somebody else's: the one that was
// there before, where an Apply did not come far or has been undone. What is on it is its own.
func (r *removal) anothers(v *view, name string) bool {
	for _, l := range v.want.Links {
		if l.Name == name {
			return l.Kind != "" && !l.Shared && !r.dying[v.name][name]
		}
	}
	return false
}

// removeFilters takes the packet filters away.
func (v *view) removeFilters(ctx context.Context) error {
	if v.conn == nil {
		return nil
	}
	return in(v.name, v.filters.remove(ctx))
}
