// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// A link that was brought up is not ready when the kernel says so.
//
// An end of a pair has a carrier when both ends are up, but the one that was up first sends nothing, and a bridge's
// port forwards nothing, until a worker of the kernel has heard of it: usually at once, on a busy machine many
// milliseconds later. Asking for a link makes the kernel do that work before it answers (rtnl_getlink, Linux 6.8).
//
// An IPv6 address hears neighbor solicitations only when another worker has joined the address's group, also one
// without duplicate address detection. A solicitation that comes earlier is lost, and the next one comes a second
// later. Nothing makes the kernel hurry, so the groups are looked at.

const (
	joinPatience = time.Second
	joinFirst    = 50 * time.Microsecond
	joinLongest  = 5 * time.Millisecond
)

// settle makes the pod's links able to pass packets before Apply returns; the node's were asked for when they came up,
// as the later ends. A link that is to announce its addresses when it comes up had no carrier then; to have its MAC
// written again is as good a reason.
func (a *apply) settle(ctx context.Context) error {
	v := a.pod
	batch := v.settings.heard()
	for _, l := range v.settings.raised {
		have := v.links.found[l.Name]
		if l.Peer != nil && !have.MAC.IsZero() && v.sysctls.notifies(l.Name) {
			batch = append(batch, link.Set(have.Index, l.Name, link.Change{MAC: have.MAC}))
		}
	}
	if len(batch) > 0 {
		if err := v.conn.rtnl.Send(ctx, batch); err != nil {
			return in(v.name, err)
		}
	}
	for _, v := range []*view{a.host, a.pod} {
		for _, name := range v.addrs.fresh6 {
			if err := v.joined(ctx, name); err != nil {
				return in(v.name, err)
			}
		}
	}
	return nil
}

// joined waits until a link that is up hears solicitations for its planned IPv6 addresses. A plan that does not come
// true in time is no error: packets will pass a little later.
func (v *view) joined(ctx context.Context, name string) error {
	l := v.links.found[name]
	if l.Kind == "" || !v.settings.isUp(name) || unasked(l.Link) {
		// lo has no groups, and a link that is down hears nothing
		return nil
	}
	groups, wait := v.addrs.groups(name), joinFirst
	for end := time.Now().Add(joinPatience); len(groups) > 0; wait = min(2*wait, joinLongest) {
		in, err := v.conn.reader.Groups(ctx, l.Index)
		if err != nil {
			return fmt.Errorf("link %s: multicast groups: %w", name, err)
		}
		for _, group := range in {
			delete(groups, group)
		}
		if len(groups) == 0 || time.Now().After(end) {
			break
		}
		time.Sleep(wait)
	}
	return nil
}

// unasked tells whether nobody asks for neighbors on a link: it carries IP itself. A tun device also joins nothing
// before a program reads it.
func unasked(l state.Link) bool {
	return l.Kind == state.IPIP || l.Kind == state.Wireguard || l.Tun != nil && l.Tun.IP
}
