// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
)

// adder handles ADD: it holds what the runs need.
type adder struct {
	boot       string
	agent      bool
	namespaces *namespaces
	locks      *lockSet
	records    *notifyingStore
	catalog    *catalog
	resolver   *resolver
	delegates  *delegator
	hook       *policyHook
	unmanaged  *unmanaged
	dscp       *dscpMarks
	prior      *priorAdd
	rollback   *rollback
	cooling    *cooling
	reaper     *kernel.Reaper
	gates      func(ctx context.Context, urls []string) error // nil: no plugin waits
	log        *slog.Logger
	now        func() time.Time
	fail       failpoint.Hook

	loggedWarnings sync.Map // warnings of plans that were logged already, by message
}

func (a *adder) newRecord(job Job, netnsID uint64) Record {
	network := job.Network
	network.Raw = nil
	return Record{
		Boot: a.boot, Stage: Pending, Serial: a.now().UnixNano(), NetnsID: netnsID,
		Request: job.Request, Network: network,
	}
}

// waitGates waits until the readiness URLs of the job's plugins answer.
func (a *adder) waitGates(ctx context.Context, job Job) error {
	for _, conf := range job.Network.Plugins {
		of := a.catalog.capabilities(conf).Gates
		if of == nil || a.gates == nil {
			continue
		}
		urls, err := of(a.catalog.input(conf, job.Request))
		if err == nil && len(urls) > 0 {
			err = a.gates(ctx, urls)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
