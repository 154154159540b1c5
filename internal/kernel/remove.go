// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/interim/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// Remove takes away everything that f names and that is not Shared, and waits until it is gone. Missing things are no
// error; a link of a wanted name that is foreign is left alone.
func (s Spaces) Remove(ctx context.Context, f state.Fragment) error {
	return s.remove(ctx, f, false, func(v *view, have link.Found) []*rtnl.Message {
		return []*rtnl.Message{link.Delete(have.Index, have.Name)}
	})
}

// Release is Remove for a caller that must not wait 30 ms for each link: what others can see is gone when it returns
// (rules, routes, names, the links' place in the bridge), the links themselves are down and in the reaper's group.
func (s Spaces) Release(ctx context.Context, f state.Fragment) error {
	return s.remove(ctx, f, true, func(v *view, have link.Found) []*rtnl.Message {
		if v.name == state.Pod { // the reaper works in the node's namespace only
			return []*rtnl.Message{link.Delete(have.Index, have.Name)}
		}
		none, group := 0, uint32(Group)
		return []*rtnl.Message{
			link.SetUp(have.Index, have.Name, false),
			link.Set(have.Index, have.Name, link.Change{Name: deadName(have.Index), Master: &none}),
			// Last: from here on the reaper may take it at any moment.
			link.Set(have.Index, have.Name, link.Change{Group: &group}),
		}
	})
}

// deadName frees a link's own name while it waits for the reaper.
func deadName(index int) string { return fmt.Sprintf("weftd%x", index) }

// remove ends links as end says. With aside, a link whose other end is ended gives its name back at once.
func (s Spaces) remove(ctx context.Context, f state.Fragment, aside bool, end func(*view, link.Found) []*rtnl.Message) error {
	host, err := look(state.Host, s.Host, f.Host)
	if err != nil {
		return err
	}
	errs := []error{host.removeTables(ctx)}
	dying, err := host.removeAll(ctx, end)
	errs = append(errs, err)
	if s.Pod == nil || f.Pod.Empty() {
		return errors.Join(errs...)
	}
	pod, err := look(state.Pod, s.Pod, f.Pod)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	var named []*rtnl.Message
	for _, l := range f.Pod.Links {
		if l.Peer == nil || !dying[l.Peer.Name] {
			continue
		}
		if have, ok := pod.links[l.Name]; ok && aside && foreign(l, have) == nil {
			named = append(named, link.SetUp(have.Index, have.Name, false),
				link.Set(have.Index, have.Name, link.Change{Name: deadName(have.Index)}))
		}
		delete(pod.links, l.Name) // goes with its other end
	}
	errs = append(errs, pod.conn.send(ctx, named, unix.ENODEV))
	errs = append(errs, pod.removeTables(ctx))
	_, err = pod.removeAll(ctx, end)
	return errors.Join(append(errs, err)...)
}

// removeAll takes the links, addresses, routes, neighbours and rules of one namespace away in one batch, and tells which
// links are on their way out.
func (v *view) removeAll(ctx context.Context, end func(*view, link.Found) []*rtnl.Message) (map[string]bool, error) {
	dying := map[string]bool{}
	var batch []*rtnl.Message
	for _, l := range v.want.Links {
		have, ok := v.links[l.Name]
		if !ok || l.Shared || l.Kind == "" || foreign(l, have) != nil {
			continue
		}
		dying[l.Name] = true
		batch = append(batch, end(v, have)...)
	}
	stays := func(name string) (int, bool) {
		have, ok := v.links[name]
		return have.Index, ok && !dying[name]
	}
	var first []*rtnl.Message
	for _, r := range v.want.Routes {
		index, ok := stays(r.Link)
		if r.Link == "" {
			index, ok = 0, true
		}
		if ok && !r.Shared {
			first = append(first, link.DelRoute(r, index))
		}
	}
	for _, r := range v.want.Rules {
		if !r.Shared {
			first = append(first, link.DelRule(r))
		}
	}
	for _, n := range v.want.Neighs {
		if index, ok := stays(n.Link); ok && !n.Shared {
			first = append(first, link.DelNeigh(n, index))
		}
	}
	for _, a := range v.want.Addrs {
		if index, ok := stays(a.Link); ok && !a.Shared {
			first = append(first, link.DelAddr(a, index))
		}
	}
	return dying, v.conn.send(ctx, append(first, batch...), unix.ENODEV, unix.ESRCH, unix.ENOENT, unix.EADDRNOTAVAIL)
}

func (v *view) removeTables(ctx context.Context) error {
	if len(v.want.Tables) == 0 {
		return nil
	}
	n, err := v.conn.tables()
	if err != nil {
		return err
	}
	if err := n.Remove(ctx, v.want.Tables); err != nil {
		return fmt.Errorf("nft: %w", err)
	}
	return nil
}

// RemoveShared takes the shared links and tables that f names, as far as nothing uses them any more: a bridge that weft
// made and that has no port, a table without elements. Addresses go with their link; shared sysctls stay.
func (s Spaces) RemoveShared(ctx context.Context, f state.Fragment) error {
	v, err := look(state.Host, s.Host, f.Host)
	if err != nil {
		return err
	}
	var errs []error
	if len(v.want.Tables) > 0 {
		n, err := v.conn.tables()
		if err != nil {
			return err
		}
		if err := n.RemoveShared(ctx, v.want.Tables); err != nil {
			errs = append(errs, fmt.Errorf("nft: %w", err))
		}
	}
	for _, l := range v.want.Links {
		have, ok := v.links[l.Name]
		if !ok || !l.Shared || l.Kind == "" || have.Kind != l.Kind || !markedShared(have) {
			continue
		}
		all, err := v.conn.allLinks()
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		used := false
		for _, other := range all {
			used = used || other.MasterIndex == have.Index
		}
		if !used {
			errs = append(errs, v.conn.send(ctx, []*rtnl.Message{link.Delete(have.Index, l.Name)}, unix.ENODEV))
		}
	}
	return errors.Join(errs...)
}

func markedShared(f link.Found) bool {
	return len(f.Alias) >= len(SharedMark) && f.Alias[:len(SharedMark)] == SharedMark
}
