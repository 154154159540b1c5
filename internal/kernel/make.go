// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/interim/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// indexTries bounds how often other indexes are chosen for links whose indexes were taken.
const indexTries = 8

// newIndex chooses a link index. The range is far above what the kernel counts up to by itself, so a clash is a rare
// accident, and the kernel refuses it.
func newIndex() int { return 1<<28 + rand.IntN(1<<30) }

// makeLinks makes the links that are missing and sets what differs on the others, the node's side in one batch (a veth's
// two ends are one request) and the pod's in another.
func (a *apply) makeLinks(ctx context.Context) error {
	if err := a.dropHalves(ctx); err != nil {
		return err
	}
	var err error
	for range indexTries {
		if err = a.tryMake(ctx); !errors.Is(err, unix.EBUSY) {
			return err
		}
		for _, v := range []*view{a.host, a.pod} {
			for name := range v.made {
				delete(v.links, name)
			}
			clear(v.made)
		}
	}
	return err
}

// dropHalves removes a veth end of ours whose other end is gone: the pair is made anew.
func (a *apply) dropHalves(ctx context.Context) error {
	for _, v := range []*view{a.host, a.pod} {
		for _, l := range v.want.Links {
			have, ok := v.links[l.Name]
			if !ok || l.Kind != state.Veth || l.Peer == nil {
				continue
			}
			other := a.view(l.Peer.Space)
			if _, whole := other.links[l.Peer.Name]; whole || other.conn == nil {
				continue
			}
			if err := v.conn.send(ctx, []*rtnl.Message{link.Delete(have.Index, l.Name)}, unix.ENODEV); err != nil {
				return err
			}
			delete(v.links, l.Name)
		}
	}
	return nil
}

func (a *apply) view(name state.SpaceName) *view {
	if name == state.Pod {
		return a.pod
	}
	return a.host
}

func (a *apply) tryMake(ctx context.Context) error {
	var hostBatch, podBatch []*rtnl.Message
	for _, veths := range []bool{false, true} { // masters before their ports
		for _, l := range a.host.want.Links {
			if (l.Kind == state.Veth) != veths {
				continue
			}
			batch, err := a.makeLink(a.host, l)
			if err != nil {
				return err
			}
			hostBatch = append(hostBatch, batch...)
		}
	}
	for _, l := range a.pod.want.Links {
		batch, err := a.makeLink(a.pod, l)
		if err != nil {
			return err
		}
		podBatch = append(podBatch, batch...)
	}
	if err := a.host.conn.send(ctx, hostBatch); err != nil {
		return err
	}
	if a.pod.conn == nil {
		return nil
	}
	return a.pod.conn.send(ctx, podBatch)
}

// makeLink is the requests that make l or set what differs on it, all but its administrative state.
func (a *apply) makeLink(v *view, l state.Link) ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	have, ok := v.links[l.Name]
	if !ok {
		create, err := a.create(v, l)
		if err != nil {
			return nil, err
		}
		have = v.links[l.Name]
		if create != nil {
			batch = append(batch, create)
		}
	}
	if l.Master != "" && v.links[l.Master].Index == 0 {
		return nil, fmt.Errorf("%s: master %s %w", l, l.Master, ErrMissing)
	}
	c, ok := v.change(l, have)
	if v.riding(l.Name, &c) || ok {
		if c.MTU != 0 || !c.MAC.IsZero() || c.Alias != "" || c.Master != nil || c.Promisc != nil || c.AllMulti != nil || c.AddrGenMode != nil || c.IPv4 != nil {
			port := c.Port
			c.Port = nil
			batch = append(batch, link.Set(have.Index, l.Name, c))
			c = link.Change{Port: port}
		}
		if c.Port != nil {
			batch = append(batch, link.Set(have.Index, l.Name, c))
		}
	}
	if bridgeDiffers(l.Bridge, have.Bridge) {
		batch = append(batch, link.SetBridge(have.Index, l.Name, *l.Bridge))
	}
	return batch, nil
}

// create is the request that makes l, nil when its other end's request does.
func (a *apply) create(v *view, l state.Link) (*rtnl.Message, error) {
	if l.Kind == "" {
		return nil, fmt.Errorf("link %s: %w", l.Name, ErrMissing)
	}
	master := 0
	if l.Master != "" {
		master = v.links[l.Master].Index
	}
	v.put(l, newIndex(), master)
	if l.Kind != state.Veth || l.Peer == nil {
		return link.Create(l, v.links[l.Name].Index, master, nil, 0, -1), nil
	}
	other := a.view(l.Peer.Space)
	for _, peer := range other.want.Links {
		if peer.Name != l.Peer.Name {
			continue
		}
		if other != v && v == a.pod {
			return nil, nil // the node's end makes both
		}
		index, ns := newIndex(), -1
		if other == v {
			if _, made := other.links[peer.Name]; made {
				return nil, nil
			}
		} else if ns = -1; a.spaces.PodNS != nil {
			ns = a.spaces.PodNS.Fd()
		} else if other.conn != nil && other.conn.ns != nil {
			ns = other.conn.ns.Fd()
		}
		if prior, ok := other.links[peer.Name]; ok && other.made[peer.Name] {
			index = prior.Index
		}
		other.put(peer, index, 0)
		return link.Create(l, v.links[l.Name].Index, master, &peer, index, ns), nil
	}
	return nil, fmt.Errorf("%s: other end %s is not in the fragment: %w", l, l.Peer.Name, ErrMissing)
}

// put notes a link that the batch under way makes.
func (v *view) put(l state.Link, index, master int) {
	if v.made[l.Name] {
		return
	}
	f := link.Found{Index: index, MasterIndex: master}
	f.Name, f.Kind, f.MAC, f.MTU, f.Up = l.Name, l.Kind, l.MAC, l.MTU, state.Off()
	f.Promisc, f.AllMulti = state.Off(), state.Off()
	v.links[l.Name] = f
	v.made[l.Name] = true
}
