// SPDX-License-Identifier: Apache-2.0

// Package effect performs what a plan wants done once: announcing addresses, waiting for duplicate address
// detection, forgetting connections.
package effect

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Do performs one effect inside ns, whose connection tracking k speaks with.
func Do(ctx context.Context, ns *netns.NS, k *Tracker, e state.Effect) error {
	switch e.Kind {
	case state.Announce:
		return Announce(ns, []state.Effect{e})
	case state.WaitDAD:
		return waitDAD(ctx, ns, e.Link)
	case state.FlushConntrack:
		return k.flush(ns, e.Flows)
	}
	return fmt.Errorf("effect %q is unknown", e.Kind)
}
