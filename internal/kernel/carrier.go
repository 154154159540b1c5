// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// A link is not ready to pass packets when the kernel reports it as up.
//
// A veth has a carrier when both ends are up, but the end that was up first sends nothing, and a bridge port forwards
// nothing, until a worker of the kernel has processed the event: usually immediately, on a busy host many milliseconds
// later. Reading the link makes the kernel do that work before it answers (rtnl_getlink, Linux 6.8).
//
// An IPv6 address receives neighbor solicitations only after another worker has joined the address's multicast group,
// also without duplicate address detection. A solicitation that arrives earlier is lost, and the next one follows a
// second later. Nothing speeds that worker up, so the groups are polled.

const (
	groupTimeout     = time.Second
	groupFirstPoll   = 50 * time.Microsecond
	groupLongestPoll = 5 * time.Millisecond
)

// settle ensures that the pod's links can pass packets before Apply returns; the node's ends came up later and were
// read then. A link that is to announce its addresses when it comes up had no carrier at that moment; setting its MAC
// address again triggers the announcement, too.
func (a *apply) settle(ctx context.Context) error {
	v := a.pod
	batch := v.settings.readBatch()
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
			if err := v.waitGroups(ctx, name); err != nil {
				return in(v.name, err)
			}
		}
	}
	return nil
}

// waitGroups waits until a link that is up receives solicitations for its planned IPv6 addresses. A timeout is no error:
// packets will pass a little later.
func (v *view) waitGroups(ctx context.Context, name string) error {
	l := v.links.found[name]
	if l.Kind == "" || !v.settings.isUp(name) || carriesIP(l.Link) {
		// lo has no groups, and a link that is down receives nothing
		return nil
	}
	groups, wait := v.addrs.groups(name), groupFirstPoll
	for end := time.Now().Add(groupTimeout); len(groups) > 0; wait = min(2*wait, groupLongestPoll) {
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

// carriesIP reports whether a link has no neighbor discovery because it carries IP directly. A tun device also joins no
// group before a program reads it.
func carriesIP(l state.Link) bool {
	return l.Kind == state.IPIP || l.Kind == state.Wireguard || l.Tun != nil && l.Tun.IP
}
