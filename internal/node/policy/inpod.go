// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/plan/policy"
)

// errMeddled is of a place whose table somebody else has touched.
var errMeddled = errors.New("somebody else has changed the table")

// meddlePause is between two looks at what others do in a pod: who is root there may do it without end, and each time a table is written.
const meddlePause = 250 * time.Millisecond

// look has the table in a pod's namespace be put right as soon as somebody else touches it: who is root in the pod may. The lock
// is held.
func (e *Enforcer) look(p policy.Place, at *place) {
	port, err := at.conn.Port()
	if err != nil {
		e.log.Warn("the policies of a pod are looked at now and then only", "pod", p.Pod.String(), "err", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	meddled, err := watch.Meddled(ctx, at.ns, watch.Own{Port: port, Table: p.Table()})
	if err != nil {
		cancel()
		e.log.Warn("the policies of a pod are looked at now and then only", "pod", p.Pod.String(), "err", err)
		return
	}
	at.blind = cancel
	go func() {
		for range meddled { // until the place is closed
			e.mu.Lock()
			if e.places[p] == at && at.conn != nil && at.broken == nil {
				at.broken = errMeddled
				e.stats.Meddled++
			}
			e.mu.Unlock()
			token(e.due)
			select {
			case <-ctx.Done():
			case <-e.cfg.After(meddlePause):
			}
		}
	}()
}

// countEach are the packets that policies denied, by where they are counted: on the node, at its bridges' ports, in pods.
func (e *Enforcer) countEach(ctx context.Context) (map[string][]kernel.Count, error) {
	out := map[string][]kernel.Count{}
	var err error
	if out[""], err = e.cfg.Host.Counts(ctx, policy.TableFamily, policy.TableName); err != nil {
		return nil, err
	}
	e.mu.Lock()
	ports := e.hasPorts()
	pods := map[policy.Place]*kernel.Conn{}
	for p, at := range e.places {
		if at.conn != nil {
			pods[p] = at.conn
		}
	}
	e.mu.Unlock()
	if ports {
		if out["ports"], err = e.cfg.Host.Counts(ctx, policy.Place{Ports: true}.Family(), policy.TableName); err != nil {
			return nil, err
		}
	}
	for p, conn := range pods {
		if all, err := conn.Counts(ctx, p.Family(), p.Table()); err == nil { // else the pod has just gone
			out[strings.TrimSuffix(p.Pod.String()+"/"+p.Pod.UID+"/"+p.Tap, "/")] = all
		}
	}
	return out, nil
}
