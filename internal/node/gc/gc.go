// SPDX-License-Identifier: Apache-2.0

// Package gc is garbage collection by the container runtime's sandboxes: it deletes attachments whose sandbox no
// longer exists and for which no DEL was called.
//
// The runtime's list of sandboxes is not trusted: an attachment is deleted only if it is older than any sandbox that
// is still being created, and if two lists in a row lack its sandbox. Its age is from when the agent first saw it. An
// empty list, or one without the agent's own pod, deletes nothing.
package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/cri"
	"github.com/weft-net/weft/internal/node/metrics"
)

// leakAge is how long the collector must have known an attachment before it can be a leak. A runtime lists a sandbox
// only when its network exists, and the kubelet gives up on creating one after four minutes. The time of the ADD, which
// the record has, is no measure: when the clock is set, a sandbox that is being created is hours old, or a leak is not
// born yet.
const leakAge = 5 * time.Minute

// errForeignList reports a list that does not contain this node's pods.
var errForeignList = errors.New("the agent's own pod is not in the runtime's list")

// Records lists the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Attachments deletes attachments.
type Attachments interface {
	Del(ctx context.Context, job attach.Job) error
}

// Config configures a Collector.
type Config struct {
	// Endpoint is the runtime's CRI socket, or "auto".
	Endpoint string
	// Interval is the pause between two comparisons.
	Interval time.Duration
	// PodUID is the UID of the agent's own pod, empty if it runs in none.
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
	client *cri.Client // nil before the first connection
	// absent are the containers that the last list lacked. One list alone proves nothing.
	absent map[string]bool
	// since is when the collector first saw each record, by key and serial.
	since map[seen]time.Time
}

// seen is one ADD of an attachment.
type seen struct {
	key    model.AttachmentKey
	serial int64
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
		if err.Error() != last { // an unreachable runtime is logged once
			last = err.Error()
			c.cfg.Log.Warn("garbage collection failed", "err", err)
		}
	}
}

// pass is one comparison.
func (c *Collector) pass(ctx context.Context) error {
	live, err := c.sandboxes(ctx)
	if err != nil {
		c.absent = map[string]bool{} // a sandbox must be missing in two lists in a row
		return err
	}
	records, err := c.cfg.Records.List()
	errs := []error{err}
	absent, since, now := map[string]bool{}, make(map[seen]time.Time, len(records)), c.cfg.Now()
	defer func() { c.since = since }()
	for _, rec := range slices.Backward(records) { // in reverse order of a pod's networks
		id, this := rec.Request.ContainerID, seen{rec.Key(), rec.Serial}
		first, known := c.since[this]
		if !known {
			first = now
		}
		since[this] = first
		if live[id] || !ofKubernetes(rec) || now.Sub(first) < leakAge {
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

// sandboxes returns the IDs of all sandboxes, if the list can be trusted.
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

// ofKubernetes reports whether a runtime attached this for the kubelet. Attachments made by hand, or by another
// runtime for itself, are in no list of sandboxes.
func ofKubernetes(rec attach.Record) bool {
	id, _ := rec.Request.Arg("K8S_POD_INFRA_CONTAINER_ID")
	return id == rec.Request.ContainerID
}

// remove does the missing DEL.
func (c *Collector) remove(ctx context.Context, rec attach.Record) error {
	job := attach.Job{Network: rec.Network, Request: rec.Request}
	if rec.Request.Netns != "" {
		if ns, err := netns.Open(rec.Request.Netns); err == nil { // the namespace may still have devices to return
			defer func() { _ = ns.Close() }()
			job.Netns = ns
		}
	}
	if err := c.cfg.Attachments.Del(ctx, job); err != nil {
		return fmt.Errorf("attachment %s without a sandbox could not be deleted: %w", rec.Key(), err)
	}
	namespace, _ := rec.Request.Arg("K8S_POD_NAMESPACE")
	name, _ := rec.Request.Arg("K8S_POD_NAME")
	c.cfg.Log.Warn(
		"leaked attachment is deleted",
		"container",
		rec.Request.ContainerID[:min(len(rec.Request.ContainerID), 12)],
		"pod",
		namespace+"/"+name,
		"network",
		rec.Request.Network,
		"interface",
		rec.Request.IfName,
		"addresses",
		addresses(rec),
	)
	c.cfg.Metrics.Collected(rec.Request.Network, 1)
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
