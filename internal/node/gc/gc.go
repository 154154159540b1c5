// SPDX-License-Identifier: Apache-2.0

// Package gc is garbage collection against the container runtime: it deletes attachments whose sandboxes no longer
// exist, because their DEL never came.
//
// The runtime's list of sandboxes is the evidence, and it is distrusted: an attachment is deleted only if it is older
// than a sandbox that is still being made can be, and if two lists in a row lack its sandbox. An empty list, or one
// without the agent's own pod, deletes nothing.
package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/cri"
	"github.com/weft-net/weft/internal/node/metrics"
)

// leakAge is how old an attachment must be before it can be a leak. A runtime lists a sandbox only when its network is
// there, and the kubelet gives one up after four minutes.
const leakAge = 5 * time.Minute

// errForeignList tells of a list that is not about this node's pods.
var errForeignList = errors.New("the agent's own pod is not in the runtime's list")

// Records are the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Attachments can be deleted.
type Attachments interface {
	Del(ctx context.Context, job attach.Job) error
}

// Config is a Collector's.
type Config struct {
	// Endpoint is the runtime's CRI socket, or "auto".
	Endpoint string
	// Interval is the pause between two comparisons.
	Interval time.Duration
	// PodUID is the agent's own pod's, empty when it is none.
	PodUID      string
	Records     Records
	Attachments Attachments
	Metrics     *metrics.Metrics
	Log         *slog.Logger
	Now         func() time.Time
	After       func(time.Duration) <-chan time.Time
}

// Collector deletes the attachments whose sandboxes are gone.
type Collector struct {
	cfg    Config
	client *cri.Client // nil before the runtime answered
	// absent are the containers that the last list did not have. One list alone proves nothing.
	absent map[string]bool
}

// New returns a Collector.
func New(cfg Config) *Collector { return &Collector{cfg: cfg, absent: map[string]bool{}} }

// Run compares the records with the runtime's list of sandboxes periodically, until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	defer func() {
		if c.client != nil {
			_ = c.client.Close()
		}
	}()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.cfg.After(c.cfg.Interval):
		}
		err := c.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			c.cfg.Metrics.GC("done")
			last = ""
			continue
		case errors.Is(err, cri.ErrEmpty), errors.Is(err, errForeignList):
			c.cfg.Metrics.GC("refused")
		default:
			c.cfg.Metrics.GC("failed")
		}
		if err.Error() != last { // a runtime that stays away is one line
			last = err.Error()
			c.cfg.Log.Warn("nothing is collected", "err", err)
		}
	}
}

// pass is one comparison.
func (c *Collector) pass(ctx context.Context) error {
	live, err := c.sandboxes(ctx)
	if err != nil {
		c.absent = map[string]bool{} // what is missing must be missing in two lists, one after the other
		return err
	}
	records, err := c.cfg.Records.List()
	errs := []error{err}
	absent := map[string]bool{}
	for _, rec := range slices.Backward(records) { // the last network of a pod first
		id := rec.Request.ContainerID
		if live[id] || !ofKubernetes(rec) || c.cfg.Now().Sub(rec.Since()) < leakAge {
			continue
		}
		absent[id] = true
		if !c.absent[id] {
			continue
		}
		if err := c.remove(ctx, rec); err != nil {
			errs = append(errs, err)
		}
	}
	c.absent = absent
	return errors.Join(errs...)
}

// sandboxes are the ids of all sandboxes, when the list can be trusted.
func (c *Collector) sandboxes(ctx context.Context) (map[string]bool, error) {
	if c.client == nil {
		endpoint := c.cfg.Endpoint
		var err error
		if endpoint == "auto" {
			if endpoint, err = cri.Find(cri.Endpoints()); err != nil {
				return nil, err
			}
		}
		if c.client, err = cri.Dial(endpoint); err != nil {
			return nil, err
		}
	}
	list, err := c.client.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	uid := c.cfg.PodUID
	if uid != "" && !slices.ContainsFunc(list, func(s cri.Sandbox) bool { return s.UID == uid }) {
		return nil, fmt.Errorf("pod %s: %w", uid, errForeignList)
	}
	live := map[string]bool{}
	for _, s := range list {
		live[s.ID] = true
	}
	return live, nil
}

// ofKubernetes reports whether a runtime attached this for the kubelet. What somebody attached by hand, or another
// runtime for itself, is in no list of sandboxes.
func ofKubernetes(rec attach.Record) bool {
	id, _ := rec.Request.Arg("K8S_POD_INFRA_CONTAINER_ID")
	return id == rec.Request.ContainerID
}

// remove does the DEL that never came.
func (c *Collector) remove(ctx context.Context, rec attach.Record) error {
	job := attach.Job{Network: rec.Network, Request: rec.Request}
	if rec.Request.Netns != "" {
		if ns, err := netns.Open(rec.Request.Netns); err == nil { // there may be something in it to give back
			defer func() { _ = ns.Close() }()
			job.Netns = ns
		}
	}
	if err := c.cfg.Attachments.Del(ctx, job); err != nil {
		return fmt.Errorf("attachment %s has no sandbox and cannot be taken away: %w", rec.Key(), err)
	}
	namespace, _ := rec.Request.Arg("K8S_POD_NAMESPACE")
	name, _ := rec.Request.Arg("K8S_POD_NAME")
	c.cfg.Log.Warn("leak taken away", "id", rec.Request.ContainerID[:min(len(rec.Request.ContainerID), 12)],
		"pod", namespace+"/"+name,
		"network", rec.Request.Network, "ifname", rec.Request.IfName, "addresses", addresses(rec))
	c.cfg.Metrics.Leak(rec.Request.Network, 1)
	return nil
}

func addresses(rec attach.Record) string {
	if rec.Result == nil {
		return ""
	}
	var all []string
	for _, ip := range rec.Result.IPs {
		all = append(all, ip.Address.Addr().String())
	}
	return fmt.Sprint(all)
}
