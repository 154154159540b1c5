// SPDX-License-Identifier: Apache-2.0

// Package effect performs the one-time actions of a plan: announcing addresses, duplicate address
// detection, deleting conntrack entries, giving the files of devices to their users.
package effect

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Do performs one effect inside ns, whose connection tracking k accesses.
func Do(ctx context.Context, ns *netns.NS, k *Conntrack, e state.Effect) error {
	switch e.Kind {
	case state.Announce:
		return SendGratuitousARP(ns, []state.Effect{e})
	case state.WaitDAD:
		return waitDAD(ctx, ns, e.Link)
	case state.FlushConntrack:
		return k.flushFlows(ns, e.Flows)
	case state.OwnDevice:
		return ownDevice(ns, e)
	}
	return fmt.Errorf("effect %q is unknown", e.Kind)
}
