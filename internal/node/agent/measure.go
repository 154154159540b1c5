// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/metrics"
)

// measure makes the metrics, where somebody may ask for them, and takes the address.
func (a *agent) measure() error {
	if a.cfg.Metrics.Address == "" {
		return nil
	}
	var err error
	if a.web, err = metrics.Listen(a.cfg.Metrics.Address); err != nil {
		return err
	}
	a.metrics = metrics.New(a.cfg.Version)
	a.metrics.Gauge("weft_attachments", "Attachments in the ledger.", func() float64 {
		n, err := a.ledger.Len()
		if err != nil {
			a.cfg.Log.Warn("attachments cannot be counted", "err", err)
		}
		return float64(n)
	})
	a.metrics.Gauge("weft_ready", "1 when new pods can be served, otherwise 0.", func() float64 {
		if a.servesPods() != nil {
			return 0
		}
		return 1
	})
	return nil
}

// alive says why the agent must be started again: its ledger is stuck. A full or read-only file system is not helped by that,
// and policies and the mesh go on.
func (a *agent) alive() error {
	if err := a.ledger.Health(); errors.Is(err, ledger.ErrStuck) {
		return err
	}
	return nil
}

// servesPods says why new pods cannot be served.
func (a *agent) servesPods() error {
	return errors.Join(a.health.Err(), a.ledger.Health())
}

// measureBlocks adds what the block engine has.
func (a *agent) measureBlocks(e *blocks.Engine) {
	a.metrics.Gauge("weft_address_blocks", "Blocks of addresses that this node has.", func() float64 { return float64(e.Count().Blocks) })
	a.metrics.Gauge("weft_addresses_free", "Addresses of this node's blocks that can be given at once.", func() float64 { return float64(e.Count().Free) })
	a.metrics.Gauge("weft_addresses_held", "Addresses of pools that this node's attachments have.", func() float64 { return float64(e.Count().Held) })
}

// tell answers who asks for metrics, readiness or the log's level, until ctx ends.
func (a *agent) tell(ctx context.Context) error {
	server := &metrics.Server{
		Metrics: a.metrics, Ready: a.servesPods, Alive: a.alive, Level: a.cfg.Level, Attachments: a.attachments, Log: a.cfg.Log.With("room", "metrics"),
	}
	server.Addresses = a.giving
	return server.Run(ctx, a.web)
}

// attachment is what /attachments says of one.
type attachment struct {
	model.AttachmentKey
	Stage  attach.Stage  `json:"stage"`
	Since  time.Time     `json:"since"`
	Pod    string        `json:"pod,omitempty"`
	Netns  string        `json:"netns,omitempty"`
	Result *model.Result `json:"result,omitempty"`
	// Filed is the directory of host-local's that all its addresses are from.
	Filed string `json:"filed,omitempty"`
}

// attachments is the ledger for people.
func (a *agent) attachments() (any, error) {
	records, err := a.ledger.List()
	all := make([]attachment, 0, len(records))
	for _, rec := range records {
		namespace, _ := rec.Request.Arg("K8S_POD_NAMESPACE")
		name, _ := rec.Request.Arg("K8S_POD_NAME")
		one := attachment{AttachmentKey: rec.Key(), Stage: rec.Stage, Since: rec.Since(), Netns: rec.Request.Netns, Result: rec.Result, Filed: a.filedIn(rec)}
		if name != "" {
			one.Pod = namespace + "/" + name
		}
		all = append(all, one)
	}
	return all, err
}

// repaired counts repairs, where metrics are served.
func (a *agent) repaired() func([]string) {
	if a.metrics == nil {
		return nil
	}
	return a.metrics.Repaired
}
