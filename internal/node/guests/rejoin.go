// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// joinEvery is how often joins are looked at.
const joinEvery = 10 * time.Second

// rejoin brings back the joins of an attachment that somebody takes away, until the context ends: nothing in the pod or
// on the node would do that, and a guest that is cut off cannot.
func (srv *Server) rejoin(ctx context.Context, rec attach.Record) {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.cfg.After(joinEvery):
		}
		err := srv.rejoinOnce(ctx, rec)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			srv.cfg.Log.Warn("the guest's wire is not looked at", "attachment", rec.Key().String(), "err", err)
		}
	}
}

func (srv *Server) rejoinOnce(ctx context.Context, rec attach.Record) error {
	release, err := srv.cfg.Hold(ctx, rec.Key().ContainerID)
	if err != nil {
		return err
	}
	defer release()
	now, found, err := srv.cfg.Records.Get(rec.Key())
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
		srv.cfg.Log.Warn("a guest was cut off, and is joined to the pod's network again", "attachment", rec.Key().String(),
			"join", cut[0].Want)
	}
	return err
}
