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

// removal is one running Remove or Release.
type removal struct {
	host, pod *view
	// dying are the links to be deleted, by space and name.
	dying map[state.SpaceName]map[string]bool
}

// Remove deletes every object that f names and that is not Shared, and waits until it is deleted. Missing objects are
// no error; a foreign link of a wanted name stays. Tables are deleted after the links: their filters must be in effect
// as long as the links exist.
func (s Spaces) Remove(ctx context.Context, f state.Fragment) error {
	r, err := s.findOwned(ctx, f)
	if err != nil {
		return err
	}
	errs := []error{r.removeRest(ctx, r.pod, nil), r.removeRest(ctx, r.host, nil)}
	for _, v := range []*view{r.host, r.pod} {
		errs = append(errs, s.moveLinksBack(ctx, v), in(v.name, v.delete(ctx, r.needDelete(v))), r.leaveVRFs(ctx, v),
			v.renameBack(ctx))
	}
	return errors.Join(
		append(errs, r.pod.removeFilters(ctx), r.host.removeFilters(ctx), s.effects(ctx, f.Effects, state.OnRemove))...,
	)
}

// Release is Remove for a caller that must not wait 30 ms for each link. When it returns, everything visible to others
// is removed (rules, routes, addresses, traffic): the links are marked as dead and the node's ends are down, in the
// reaper's group; a pod's end is deleted with its other end. A dead link keeps its name and its port in a bridge:
// deleting them would cost an RCU wait each, under the kernel's global lock, and all of a DEL costs three of them.
// Observe does not see a dead link, and an Apply that needs its name deletes it first.
func (s Spaces) Release(ctx context.Context, f state.Fragment) error {
	r, err := s.findOwned(ctx, f)
	if err != nil {
		return err
	}
	errs := []error{
		r.removeRest(ctx, r.pod, r.markPodEnds()),
		s.moveLinksBack(ctx, r.pod), s.moveLinksBack(ctx, r.host),
		in(state.Pod, r.pod.delete(ctx, r.needDelete(r.pod))), r.leaveVRFs(ctx, r.pod), r.pod.renameBack(ctx),
	}
	var batch []*rtnl.Message
	for _, have := range r.needDelete(r.host) {
		// The last request in its namespace: afterwards the reaper may delete it at any moment.
		batch = append(batch, markDead(have, state.Off()))
	}
	return errors.Join(append(errs, r.removeRest(ctx, r.host, batch), r.pod.removeFilters(ctx), r.host.removeFilters(ctx),
		s.effects(ctx, f.Effects, state.OnRemove))...)
}

// markPodEnds marks the pod's ends as dead; they are deleted with their other ends.
func (r *removal) markPodEnds() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range r.links(r.pod) {
		if r.deletedWithPeer(l) {
			batch = append(batch, markDead(r.pod.links.found[l.Name], nil))
		}
	}
	return batch
}

// markDead moves a link to the group of dead links, setting the administrative state in the same request if up is not nil.
func markDead(have link.Found, up *bool) *rtnl.Message {
	group := uint32(ReaperGroup)
	return link.Set(have.Index, have.Name, link.Change{Up: up, Group: &group}).Forgiving(enodev)
}

// clear deletes links that are in the place of wanted ones: dead ones, and the owner's own that must be re-created.
func (v *view) clear(ctx context.Context) error {
	var gone []link.Found
	for _, l := range v.want.Links {
		have, ok := v.links.found[l.Name]
		if ok && l.Kind != "" &&
			(have.Dead() || l.Recreate && foreign(l, have) == nil && fixed(l, have) || replaced(l, have)) {
			gone = append(gone, have)
			delete(v.links.found, l.Name)
		}
	}
	return in(v.name, v.delete(ctx, gone))
}

// findOwned determines which of the links that f names exist and are ours.
func (s Spaces) findOwned(ctx context.Context, f state.Fragment) (*removal, error) {
	host, err := readView(ctx, state.Host, s.Host, f.Host)
	if err != nil {
		return nil, err
	}
	pod, err := readView(ctx, state.Pod, s.Pod, f.Pod)
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

// links returns the links of a space that are deleted.
func (r *removal) links(v *view) []state.Link {
	var out []state.Link
	for _, l := range v.want.Links {
		if r.dying[v.name][l.Name] {
			out = append(out, l)
		}
	}
	return out
}

// deletedWithPeer reports whether the other end of a pod's link is deleted as well, and the link with it.
func (r *removal) deletedWithPeer(l state.Link) bool {
	return l.Peer != nil && l.Peer.Space == state.Host && r.dying[state.Host][l.Peer.Name] &&
		pairError(l, r.pod.links.found[l.Name], r.host.links.found) == nil
}

// needDelete returns the links that need a request to be deleted: not those that are deleted with their other end.
func (r *removal) needDelete(v *view) []link.Found {
	var out []link.Found
	for _, l := range r.links(v) {
		if v != r.pod || !r.deletedWithPeer(l) {
			out = append(out, v.links.found[l.Name])
		}
	}
	return out
}

// delete deletes links: several as a group of their own, because each deletion makes the kernel wait.
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

// removeRest deletes rules, routes, neighbors and addresses, then sends then. Objects on a link that is deleted are not
// deleted one by one, except for the node's addresses: they are answered for as long as they exist.
func (r *removal) removeRest(ctx context.Context, v *view, then []*rtnl.Message) error {
	if v.conn == nil {
		return nil
	}
	if err := in(
		v.name, v.joins.end(ctx, func(j state.Join) bool { return !r.isForeign(v, j.Tap) || v.links.index(j.Tap) == 0 }),
	); err != nil {
		return err
	}
	batch, err := v.qdiscs.removal(ctx, func(name string) bool { return !r.dying[v.name][name] && !r.isForeign(v, name) })
	if err != nil {
		return in(v.name, err)
	}
	stays := func(name string) (int, bool) {
		have, ok := v.links.found[name]
		return have.Index, ok && !r.dying[v.name][name] && !r.isForeign(v, name)
	}
	batch = slices.Concat(batch, v.rules.removal(), v.routes.removal(stays), v.neighs.removal(stays),
		v.fdbs.removal(stays),
		v.addrs.removal(func(a state.Addr) bool {
			if _, ok := stays(a.Link); ok {
				return true
			}
			// IPv6 addresses are removed when the link goes down.
			return v == r.host && then != nil && a.Prefix.Addr().Is4() && !r.isForeign(v, a.Link)
		}), then)
	return in(v.name, v.conn.rtnl.Send(ctx, batch))
}

// isForeign reports whether a link that has the name of one of the space's own links belongs to another owner: it
// existed before, because an Apply failed early or was undone. Objects on it are its own.
func (r *removal) isForeign(v *view, name string) bool {
	for _, l := range v.want.Links {
		if l.Name == name {
			return l.Kind != "" && !l.Shared && !r.dying[v.name][name]
		}
	}
	return false
}

// removeFilters removes the packet filters.
func (v *view) removeFilters(ctx context.Context) error {
	if v.conn == nil {
		return nil
	}
	return in(v.name, v.filters.remove(ctx))
}
