// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// joinPeriod is how often joins are checked.
const joinPeriod = 10 * time.Second

// rejoin repairs the joins of an attachment until the context ends. No other component would, and a guest without its
// join has no network.
func (srv *Server) rejoin(ctx context.Context, rec attach.Record) {
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.cfg.After(joinPeriod):
		}
		err := srv.rejoinOnce(ctx, rec)
		if err != nil && ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			srv.cfg.Log.Warn("joins of a guest could not be checked", "attachment", rec.Key().String(), "err", err)
		}
	}
}

func (srv *Server) rejoinOnce(ctx context.Context, rec attach.Record) error {
	release, err := srv.cfg.Lock(ctx, rec.Key().ContainerID)
	if err != nil {
		return err
	}
	defer release()
	now, found, err := srv.cfg.Records.Get(rec.Key())
	if err != nil || !found || now.Stage != attach.Done || now.Serial != rec.Serial {
		return err // it is being deleted, or was replaced
	}
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return nil // the pod is gone, and its joins with it
	}
	defer func() { _ = ns.Close() }()
	if id, err := ns.ID(); err != nil || id != rec.NetnsID {
		return err
	}
	cut, err := phase1.Rejoin(ctx, ns, now.Joins())
	if len(cut) > 0 && err == nil {
		srv.cfg.Log.Warn("join of a guest was missing and is repaired", "attachment", rec.Key().String(),
			"join", cut[0].Want)
	}
	return err
}
