// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/notify"
)

// The pauses between two attempts to find the containers of endpoints.
const (
	labelsFirst = 20 * time.Millisecond
	labelsMost  = 2 * time.Second
)

// opener opens the interfaces of containers whose labels are known.
type opener struct {
	agent   *agent
	engine  *engine
	records *records
	after   func(time.Duration) <-chan time.Time
	wake    notify.Chan // there may be an endpoint to open
	log     *slog.Logger
}

// openAll opens endpoints once their containers' labels are known, until ctx ends.
func (o *opener) openAll(ctx context.Context) {
	pause := labelsFirst
	reported := map[string]string{}
	for {
		waiting := o.openOnce(ctx, reported)
		var again <-chan time.Time
		if waiting {
			again = o.after(pause)
			pause = min(2*pause, labelsMost)
		} else {
			pause = labelsFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			pause = labelsFirst
		case <-again:
		}
	}
}

// openOnce tries it once for each endpoint that is closed, and reports whether some are left.
func (o *opener) openOnce(ctx context.Context, reported map[string]string) (waiting bool) {
	byNetwork := map[string][]endpoint{}
	closed := map[string]bool{}
	for _, e := range o.records.all() {
		if e.Joined && !e.Labeled {
			byNetwork[e.Network] = append(byNetwork[e.Network], e)
			closed[e.ID] = true
		}
	}
	maps.DeleteFunc(reported, func(id, _ string) bool { return !closed[id] })
	for _, network := range slices.Sorted(maps.Keys(byNetwork)) {
		containers, err := o.engine.endpoints(ctx, network)
		for _, e := range byNetwork[network] {
			bad := err
			if bad == nil {
				bad = o.open(ctx, e, containers[e.Endpoint])
			}
			if bad == nil || ctx.Err() != nil {
				continue
			}
			waiting = true
			if text := bad.Error(); !errors.Is(bad, errStarting) && reported[e.ID] != text {
				reported[e.ID] = text
				o.log.Warn("labels of a container are not known; nothing passes its interface until they are", "endpoint",
					e.Endpoint, "network", network, "address", e.address().Addr().String(), "err", bad)
				o.reportClosed(ctx, e, text)
			}
		}
	}
	return waiting
}

// reportClosed has the agent report to operators why nothing passes an endpoint.
func (o *opener) reportClosed(ctx context.Context, e endpoint, reason string) {
	closed := agentapi.Closed{Key: key(e), Address: e.address().Addr(), Reason: reason}
	if err := o.agent.request(ctx, http.MethodPost, agentapi.RouteClosed, closed, nil, nil); err != nil {
		o.log.Debug("agent cannot report that labels of a container are not known", "attachment", e.ID, "err", err)
	}
}

// errStarting reports an endpoint that has no container yet.
var errStarting = errors.New("the endpoint has no container yet")

// open opens an endpoint.
func (o *opener) open(ctx context.Context, e endpoint, id string) error {
	if id == "" || strings.HasPrefix(id, "ep-") {
		return errStarting
	}
	c, err := o.engine.container(ctx, id)
	if err != nil {
		return err
	}
	labels := selectable(c.Labels)
	if err := o.agent.request(ctx, http.MethodPost, agentapi.RouteLabels, agentapi.Labels{Key: key(e), Labels: labels},
		nil, nil); err != nil {
		return fmt.Errorf("container %s: %w", c.Name, err)
	}
	if _, ok, err := o.records.updateEndpoint(e.ID, func(e *endpoint) { e.Labeled, e.Container = true, c.Name }); !ok || err != nil {
		return err // or it is gone
	}
	o.log.Info("container is connected", "container", c.Name, "address", e.address().Addr().String(), "attachment", e.ID)
	return nil
}

// The forms of Kubernetes' label keys and values.
var (
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// selectable returns the labels that a selector can name. Docker's labels may be any text; the others select nothing.
func selectable(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		prefix, name, has := strings.Cut(key, "/")
		if !has {
			prefix, name = "", key
		}
		if has && !labelPrefix.MatchString(prefix) || !labelName.MatchString(name) ||
			value != "" && !labelName.MatchString(value) {
			continue
		}
		out[key] = value
	}
	return out
}
