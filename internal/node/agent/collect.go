// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/cri"
)

// leakAge is how old an attachment must be before it can be a leak. A runtime lists a sandbox only when its network is
// there, and the kubelet gives one up after four minutes.
const leakAge = 5 * time.Minute

// errStranger tells of a list that is not about this node's pods.
var errStranger = errors.New("the agent's own pod is not in the runtime's list")

// collector takes away the attachments whose sandboxes are gone: what a DEL that was never made has left.
type collector struct {
	*agent
	client *cri.Client
	// absent are the containers that the last list did not have. One list alone proves nothing.
	absent map[string]bool
}

// collect compares the ledger with the runtime's list of sandboxes now and then, until ctx ends.
func (a *agent) collect(ctx context.Context) error {
	c := &collector{agent: a, absent: map[string]bool{}}
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
		case <-a.cfg.After(time.Duration(a.cfg.Runtime.GCInterval)):
		}
		err := c.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			a.metrics.GC("done")
			last = ""
			continue
		case errors.Is(err, cri.ErrEmpty), errors.Is(err, errStranger):
			a.metrics.GC("refused")
		default:
			a.metrics.GC("failed")
		}
		if err.Error() != last { // a runtime that stays away is one line
			last = err.Error()
			a.cfg.Log.Warn("nothing is collected", "err", err)
		}
	}
}

// pass is one comparison.
func (c *collector) pass(ctx context.Context) error {
	live, err := c.sandboxes(ctx)
	if err != nil {
		c.absent = map[string]bool{} // what is missing must be missing in two lists, one after the other
		return err
	}
	records, err := c.ledger.List()
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
		if err := c.take(ctx, rec); err != nil {
			errs = append(errs, err)
		}
	}
	c.absent = absent
	return errors.Join(errs...)
}

// sandboxes are the ids of all sandboxes, when the list can be trusted.
func (c *collector) sandboxes(ctx context.Context) (map[string]bool, error) {
	if c.client == nil {
		endpoint := c.cfg.Runtime.Endpoint
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
		return nil, fmt.Errorf("pod %s: %w", uid, errStranger)
	}
	live := map[string]bool{}
	for _, s := range list {
		live[s.ID] = true
	}
	return live, nil
}

// ofKubernetes tells whether a runtime attached this for the kubelet. What somebody attached by hand, or another runtime
// for itself, is in no list of sandboxes.
func ofKubernetes(rec attach.Record) bool {
	id, _ := rec.Request.Arg("K8S_POD_INFRA_CONTAINER_ID")
	return id == rec.Request.ContainerID
}

// take does the DEL that nobody did.
func (c *collector) take(ctx context.Context, rec attach.Record) error {
	job := attach.Job{Network: rec.Network, Request: rec.Request}
	if rec.Request.Netns != "" {
		if ns, err := netns.Open(rec.Request.Netns); err == nil { // there may be something in it to give back
			defer func() { _ = ns.Close() }()
			job.Netns = ns
		}
	}
	if err := c.attacher.Del(ctx, job); err != nil {
		return fmt.Errorf("attachment %s has no sandbox and cannot be taken away: %w", rec.Key(), err)
	}
	namespace, _ := rec.Request.Arg("K8S_POD_NAMESPACE")
	name, _ := rec.Request.Arg("K8S_POD_NAME")
	c.cfg.Log.Warn("leak taken away", "id", rec.Request.ContainerID[:min(len(rec.Request.ContainerID), 12)], "pod", namespace+"/"+name,
		"network", rec.Request.Network, "ifname", rec.Request.IfName, "addresses", addresses(rec))
	c.metrics.Leak(rec.Request.Network, 1)
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

// called counts a call that is over.
func (a *agent) called(verb string, err error, took time.Duration) {
	var f *model.Fault
	code := uint(0)
	switch {
	case errors.As(err, &f):
		code = uint(f.Code)
	case err != nil:
		code = uint(model.CodeInternal)
	}
	a.metrics.Call(verb, code, took)
	a.bringing()
	a.tellMarked()
	if t := a.topology.Load(); t != nil && slices.Contains(t.Bridged, 6) && err == nil && (verb == "ADD" || verb == "DEL") {
		a.tellMesh()
	}
}
