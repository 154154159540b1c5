// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/kernel/watch"
)

const (
	// mendQuiet is how long flushes are gathered: a firewall that reloads deletes one table after another.
	mendQuiet = 50 * time.Millisecond
	// mendAgain is when a pass that failed is done again, mendPeriod when one is done without a sign: legacy iptables and firewalld
	// give none.
	mendAgain, mendPeriod = time.Second, 5 * time.Minute
)

// mend brings the attachments' rules on the node back when somebody flushes them, until ctx ends.
func (a *agent) mend(ctx context.Context) error {
	gone, err := watch.TablesGone(ctx, nil, a.quiet()...)
	if err != nil {
		a.cfg.Log.Warn("flushed rules are noticed only now and then", "err", err)
	}
	for {
		err := a.attacher.Mend(ctx) // first: they may have been flushed while no agent ran
		if ctx.Err() != nil {
			return nil
		}
		wait := mendPeriod
		if err != nil {
			a.cfg.Log.Error("rules of attachments", "err", err)
			wait = mendAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-gone:
			if !open {
				gone = nil // it will not be heard of any more
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case <-a.cfg.After(mendQuiet):
			}
			select { // what was deleted meanwhile is mended with the rest
			case <-gone:
			default:
			}
		case <-a.cfg.After(wait):
		}
	}
}
