// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// newIndex chooses a link index. The range is far above the indexes that the kernel assigns, so a conflict is rare. The
// kernel refuses it; no other request for the link may be in the batch that creates it, because it would change the
// link that has the index.
func newIndex() int { return 1<<28 + rand.IntN(1<<30) }

// makeLinks reads both namespaces and creates the missing links, in place: the node's with the other ends of its pairs,
// then links that are only in the pod.
func (a *apply) makeLinks(ctx context.Context) error {
	if err := a.host.readLinks(ctx); err != nil {
		return err
	}
	if err := a.host.clear(ctx); err != nil {
		return err
	}
	if err := a.moveLinks(ctx, a.host); err != nil {
		return err
	}
	if err := a.makeIn(ctx, a.host); errors.Is(err, ErrExists) {
		return in(state.Host, a.explainPairRefusal(ctx, err))
	} else if err != nil {
		return in(state.Host, err)
	}
	if a.pod.conn == nil || a.pod.links.allMade(linkNames(a.pod.want)) {
		return nil
	}
	if err := a.pod.readLinks(ctx); err != nil {
		return err
	}
	if err := a.pod.clear(ctx); err != nil {
		return err
	}
	if err := a.moveLinks(ctx, a.pod); err != nil {
		return err
	}
	if err := a.pairs(ctx); err != nil {
		return err
	}
	return in(state.Pod, a.makeIn(ctx, a.pod))
}

// explainPairRefusal determines why a pair was refused although its name is free in the node's namespace. ErrExists remains only
// when a live link has the name of another end: a dead one is deleted now, and a name that is free again belonged to a
// dead link that the reaper deleted between the kernel's answer and this read.
func (a *apply) explainPairRefusal(ctx context.Context, err error) error {
	if readErr := a.pod.readLinks(ctx); readErr != nil {
		return errors.Join(err, readErr)
	}
	if clearErr := a.pod.clear(ctx); clearErr != nil {
		return errors.Join(err, clearErr)
	}
	for _, l := range a.host.want.Links {
		if l.Kind != state.Veth || l.Peer == nil || l.Peer.Space != state.Pod {
			continue
		}
		if _, exists := a.pod.links.found[l.Peer.Name]; exists {
			return err
		}
	}
	return fmt.Errorf("%w: %w", errRaced, err)
}

// makeIn makes the missing links of one namespace; masters before their ports, which refer to them by index.
func (a *apply) makeIn(ctx context.Context, v *view) error {
	if err := v.foreign(); err != nil {
		return err
	}
	for _, veths := range []bool{false, true} {
		var batch []*rtnl.Message
		var names []string
		for _, l := range v.want.Links {
			if !veths && v.needsBridgeMAC(l) {
				batch = append(batch, link.Set(v.links.found[l.Name].Index, l.Name, link.Change{MAC: l.MAC}))
			}
			if _, there := v.links.found[l.Name]; there || separately(l) || (l.Kind == state.Veth) != veths {
				continue
			}
			create, err := a.create(v, l)
			if err != nil {
				return err
			}
			batch, names = append(batch, create), append(names, l.Name)
		}
		if len(batch) == 0 {
			continue
		}
		if err := v.conn.rtnl.Send(ctx, batch); err != nil {
			return v.explainRefusal(ctx, err, names)
		}
	}
	return a.makeSingly(ctx, v)
}

// explainRefusal distinguishes a name that is in use from a conflict after which reading again helps.
func (v *view) explainRefusal(ctx context.Context, err error, names []string) error {
	raced := fmt.Errorf("%w: %w", err, errRaced)
	switch {
	case errors.Is(err, unix.EBUSY): // the index of the other end is in use
		return raced
	case errors.Is(err, unix.EXFULL):
		return fmt.Errorf("%w: master %w", err, ErrFull)
	case !errors.Is(err, unix.EEXIST):
		return err
	}
	now, readErr := v.conn.reader.LinksByName(ctx, names)
	if readErr != nil || len(now) > 0 { // another process made it, or it was created although its other end was refused
		return errors.Join(raced, readErr)
	}
	for _, name := range names {
		if _, taken, err := v.conn.reader.LinkByIndex(ctx, v.links.found[name].Index); err != nil || taken {
			return errors.Join(raced, err)
		}
	}
	return fmt.Errorf("%w: other end: %w", err, ErrExists) // the name is in use in the other end's namespace
}

// foreign refuses links that are not ours, and missing ones that the fragment does not make.
func (v *view) foreign() error {
	var errs []error
	for _, l := range v.want.Links {
		have, ok := v.links.found[l.Name]
		switch {
		case ok:
			errs = append(errs, foreign(l, have))
		case l.Kind == "":
			errs = append(errs, fmt.Errorf("link %s: %w", l.Name, ErrMissing))
		}
		if _, ok := v.links.found[l.Master]; l.Master != "" && !ok && !v.makes(l.Master) {
			errs = append(errs, fmt.Errorf("%s: master %s %w", l, l.Master, ErrMissing))
		}
	}
	return errors.Join(errs...)
}

// needsBridgeMAC reports whether a bridge that weft did not make gets a new port: unless its MAC was set explicitly, the bridge
// takes that of its port, so the MAC that the plan names is set before.
func (v *view) needsBridgeMAC(want state.Link) bool {
	if _, there := v.links.old(want.Name); !there || want.Kind != state.Bridge || want.MAC.IsZero() || want.Alias != "" {
		return false
	}
	return slices.ContainsFunc(v.want.Links, func(port state.Link) bool {
		_, there := v.links.found[port.Name]
		return port.Master == want.Name && !there
	})
}

func (v *view) makes(name string) bool {
	for _, l := range v.want.Links {
		if l.Name == name {
			return l.Kind != ""
		}
	}
	return false
}

// pairs compares the two ends of each pair that existed before. A marked end without its other end is deleted, so that
// the pair is re-created.
func (a *apply) pairs(ctx context.Context) error {
	for _, v := range []*view{a.host, a.pod} {
		for _, l := range v.want.Links {
			have, ok := v.links.old(l.Name)
			if !ok || l.Kind != state.Veth || l.Peer == nil || a.view(l.Peer.Space).conn == nil {
				continue
			}
			err := pairError(l, have, a.view(l.Peer.Space).links.found)
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrMissing) || l.Alias == "" || have.Alias != l.Alias {
				return in(v.name, fmt.Errorf("%w: %w", err, ErrForeign))
			}
			if err := v.conn.rtnl.Send(ctx, []*rtnl.Message{link.Delete(have.Index, l.Name)}); err != nil {
				return in(v.name, err)
			}
			return fmt.Errorf("%w: %w", err, errRaced)
		}
	}
	return nil
}

// pairError returns why a link is not the end of the wanted pair; ErrMissing: the other end does not exist.
func pairError(want state.Link, have link.Found, others map[string]link.Found) error {
	peer, ok := others[want.Peer.Name]
	if !ok {
		return fmt.Errorf("link %s: other end %s %w", want.Name, want.Peer.Name, ErrMissing)
	}
	if have.PeerIndex != peer.Index || peer.PeerIndex != have.Index {
		return fmt.Errorf("link %s: %s is not its other end", want.Name, want.Peer.Name)
	}
	return nil
}

func (a *apply) view(name state.SpaceName) *view {
	if name == state.Pod {
		return a.pod
	}
	return a.host
}

// create returns the request that makes l and, for a pair, its other end.
func (a *apply) create(v *view, l state.Link) (*rtnl.Message, error) {
	master := v.links.found[l.Master].Index
	index := v.put(l, master)
	if l.Kind != state.Veth || l.Peer == nil {
		return link.Create(l, index, master, nil, 0, -1), nil
	}
	other := a.view(l.Peer.Space)
	ns := -1
	if other != v {
		if ns = a.spaces.fd(l.Peer.Space); ns < 0 {
			return nil, fmt.Errorf("%s: other end: %w", l, ErrGone)
		}
	}
	for _, peer := range other.want.Links {
		if peer.Name == l.Peer.Name {
			return link.Create(l, index, master, &peer, other.put(peer, 0), ns), nil
		}
	}
	return nil, fmt.Errorf("%s: other end %s is not in the fragment: %w", l, l.Peer.Name, ErrMissing)
}

// fd returns a descriptor of a space's namespace, -1 when there is none.
func (s Spaces) fd(name state.SpaceName) int {
	switch c := s.conn(name); {
	case name == state.Pod && s.PodNS != nil:
		return s.PodNS.Fd()
	case c != nil && c.ns != nil:
		return c.ns.Fd()
	}
	return -1
}

// put records a link that is about to be made, and chooses its index.
func (v *view) put(l state.Link, master int) int {
	index := l.Index
	if index == 0 {
		index = v.conn.index()
	}
	v.links.put(l, index, master)
	return index
}
