// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// joinEvery is how often joins are looked at.
const joinEvery = 10 * time.Second

// rejoin brings back the joins of an attachment that somebody takes away, until the context ends: nothing in the pod or on the node
// would do that, and a guest that is cut off cannot.
func (w *wires) rejoin(ctx context.Context, rec attach.Record) {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.after(joinEvery):
		}
		err := w.rejoinOnce(ctx, rec)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			w.log.Warn("the guest's wire is not looked at", "attachment", rec.Key().String(), "err", err)
		}
	}
}

func (w *wires) rejoinOnce(ctx context.Context, rec attach.Record) error {
	release, err := w.hold(ctx, rec.Key().ContainerID)
	if err != nil {
		return err
	}
	defer release()
	now, found, err := w.ledger.Get(rec.Key())
	if err != nil || !found || now.Stage != attach.Done || now.Serial != rec.Serial {
		return err // it goes, or has gone
	}
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return nil // it goes with its pod
	}
	defer func() { _ = ns.Close() }()
	if id, err := ns.ID(); err != nil || id != rec.NetnsID {
		return err
	}
	cut, err := phase1.Rejoin(ctx, ns, now.Joins())
	if len(cut) > 0 && err == nil {
		w.log.Warn("a guest was cut off, and is joined to the pod's network again", "attachment", rec.Key().String(), "join", cut[0].Want)
	}
	return err
}

// hold waits for a sandbox's turn.
func (a *agent) hold(ctx context.Context, container string) (func(), error) {
	return a.attacher.Hold(ctx, container)
}
