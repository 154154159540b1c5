// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/weft-net/weft/internal/docker/agentapi"
)

const (
	// collectPause is the time between two comparisons with dockerd.
	collectPause = 15 * time.Second
	// collectAge is how old an attachment is, at least, that dockerd does not know and that is undone.
	collectAge = 45 * time.Second
)

// collector undoes what dockerd, or a driver that was killed, has left.
type collector struct {
	agent       *agent
	engine      *engine
	attachments *attachments
	ports       *publisher
	records     *records
	now         func() time.Time
	after       func(time.Duration) <-chan time.Time
	log         *slog.Logger
}

// collectAll undoes, until ctx ends, the attachments that dockerd does not know: it was killed, or this driver was. It
// finishes what this driver has not finished of published ports.
func (c *collector) collectAll(ctx context.Context) {
	missing := map[string]bool{}
	for {
		c.ports.publishPending(ctx)
		missing = c.collect(ctx, missing)
		select {
		case <-ctx.Done():
			return
		case <-c.after(collectPause):
		}
	}
}

// collect undoes what two lists in a row lack, and returns what this one lacks. Where dockerd does not answer, nothing is
// missing.
func (c *collector) collect(ctx context.Context, before map[string]bool) map[string]bool {
	missing := map[string]bool{}
	lists := map[string]map[string]string{}
	for _, e := range c.records.all() {
		list, known := lists[e.Network]
		if !known {
			var err error
			list, err = c.engine.endpoints(ctx, e.Network)
			if errors.Is(err, errNotFound) {
				list, err = map[string]string{}, nil
			}
			if err != nil {
				continue
			}
			lists[e.Network] = list
		}
		if _, alive := list[e.Endpoint]; alive || c.now().Sub(e.Made) < collectAge {
			continue
		}
		missing[e.ID] = true
		if !before[e.ID] {
			continue
		}
		if err := c.attachments.detach(e); err != nil {
			c.log.Warn("attachment without an endpoint of Docker cannot be undone", "attachment", e.ID, "err", err)
			continue
		}
		c.log.Warn("attachment without an endpoint of Docker was undone", "attachment", e.ID, "address", e.address().String())
	}
	c.collectUnrecorded(ctx)
	return missing
}

// collectUnrecorded undoes the attachments that the agent has and the driver has not: its state directory was lost.
func (c *collector) collectUnrecorded(ctx context.Context) {
	var all []agentapi.Attachment
	if err := c.agent.request(ctx, http.MethodGet, agentapi.RouteList, nil, nil, &all); err != nil {
		return
	}
	for _, a := range all {
		if a.Engine != agentapi.Engine {
			continue
		}
		if _, known := find(c.records, c.records.endpoints, func(e endpoint) bool { return e.ID == a.ContainerID }); known {
			continue
		}
		if err := c.attachments.detach(endpoint{ID: a.ContainerID}); err != nil {
			c.log.Warn("attachment that the driver does not know cannot be undone", "attachment", a.ContainerID, "err", err)
			continue
		}
		c.log.Warn("attachment that the driver does not know was undone", "attachment", a.ContainerID)
	}
}
