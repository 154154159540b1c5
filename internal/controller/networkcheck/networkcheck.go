// SPDX-License-Identifier: Apache-2.0

// Package networkcheck validates the cluster's NetworkAttachmentDefinitions when they are created or changed, and says in
// an event on each what is wrong with it, before a pod asks for it. The objects have no status for that.
package networkcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam/builtin"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// The reasons of the events.
const (
	eventAccepted = "NetworkAccepted"
	eventWarning  = "NetworkWarning"
	eventInvalid  = "InvalidNetwork"
)

const (
	// maxMessage is the longest message of an event that Kubernetes accepts, in bytes.
	maxMessage = 1024
	// defaultVersion is the version of a NetworkAttachmentDefinition without cniVersion.
	defaultVersion = "0.3.1"
	// recent is how old a valid network may be to be reported by a controller that starts: it is how long servers keep
	// events. Of others nothing new is to be said, and there may be thousands.
	recent = time.Hour
	// interval is how often leadership is looked at, and findings are repeated, which writes an event that the server has
	// dropped meanwhile.
	interval = 30 * time.Second
	// watchRetry is the delay after a watch that ended.
	watchRetry = 5 * time.Second
)

// Events creates events on objects.
type Events interface {
	// StateEvent records an event that is written once while the server keeps it.
	StateEvent(kind store.Kind, o store.Object, e model.Event)
}

// Config configures a Checker.
type Config struct {
	Objects store.Objects
	Events  Events
	// Leads reports whether this program is the one that writes events.
	Leads func() bool
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Checker validates networks.
type Checker struct {
	cfg Config
	// pending are the networks that are to be reported, findings those that were reported with a warning.
	pending  map[store.Key]report
	findings map[store.Key]report
	synced   bool
}

// report is a network and what is to be said about it.
type report struct {
	object store.Object
	event  model.Event
}

// New returns a Checker.
func New(cfg Config) *Checker {
	return &Checker{cfg: cfg, pending: map[store.Key]report{}, findings: map[store.Key]report{}}
}

// Run validates until ctx ends.
func (c *Checker) Run(ctx context.Context) error {
	for {
		events, err := c.cfg.Objects.Watch(ctx, store.NetworkAttachments())
		if err != nil {
			c.cfg.Log.Warn("controller cannot watch networks", "err", err)
		} else {
			c.follow(events)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.cfg.After(watchRetry):
		}
	}
}

// follow handles the changes of one watch until it ends.
func (c *Checker) follow(events <-chan store.Event) {
	c.synced = false
	tick := c.cfg.After(interval)
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			c.handle(ev)
		case <-tick:
			tick = c.cfg.After(interval)
			c.repeat()
		}
	}
}

// repeat reports the findings again.
func (c *Checker) repeat() {
	if c.cfg.Leads() {
		maps.Copy(c.pending, c.findings)
	}
	c.flush()
}

// handle takes a change.
func (c *Checker) handle(ev store.Event) {
	key := ev.Object.Key
	switch ev.Type {
	case store.Synced:
		c.synced = true
	case store.Deleted:
		delete(c.pending, key)
		delete(c.findings, key)
	case store.Added, store.Modified:
		delete(c.findings, key)
		delete(c.pending, key)
		r := report{ev.Object, Examine(ev.Object)}
		if r.event.Reason == eventAccepted && !c.synced && c.cfg.Now().Sub(created(ev.Object)) > recent {
			return
		}
		c.pending[key] = r
	case store.Faulty:
		c.cfg.Log.Warn("network cannot be read", "err", ev.Err)
	}
	c.flush()
}

// flush reports the pending networks, if this program leads.
func (c *Checker) flush() {
	if !c.synced || !c.cfg.Leads() {
		return
	}
	for key, r := range c.pending {
		c.cfg.Events.StateEvent(store.NetworkAttachments(), r.object, r.event)
		if r.event.Warning {
			c.findings[key] = r
		}
	}
	clear(c.pending)
}

// created returns the time at which the object was created, zero if it has none.
func created(o store.Object) time.Time {
	var head struct {
		Metadata struct {
			CreationTimestamp time.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Raw, &head) != nil {
		return time.Time{}
	}
	return head.Metadata.CreationTimestamp
}

// Examine returns the event of a NetworkAttachmentDefinition: that it is accepted, or what is wrong. The programs and
// files of the nodes are not known.
func Examine(o store.Object) model.Event {
	n, err := o.NetworkAttachment()
	if err != nil {
		return invalid([]string{err.Error()})
	}
	if n.Config == "" {
		return model.Event{Reason: eventAccepted, Message: "spec.config is empty: the configuration is the file of the network " +
			n.Name + " on each node"}
	}
	planners, allocators := plugin.InAgent(), builtin.Readers(noFile)
	own := slices.Sorted(maps.Keys(planners))
	own = slices.AppendSeq(own, maps.Keys(allocators))
	on := cni.Environment{Name: n.Name, Version: defaultVersion, Attached: true, Remote: true}
	found := cni.ExamineWith([]byte(n.Config), on, planners, allocators)
	found.CheckTypes(on, own)
	var problems, warnings []string
	for _, p := range found.Errors {
		problems = append(problems, "spec.config: "+p.String())
	}
	for _, w := range found.Warnings {
		warnings = append(warnings, "spec.config: "+w.String())
	}
	switch {
	case len(problems) > 0:
		return invalid(append(problems, warnings...))
	case len(warnings) > 0:
		return model.Event{Warning: true, Reason: eventWarning, Message: shortened(strings.Join(warnings, "; "))}
	}
	message := fmt.Sprintf("network %s with the plugins %s", found.Network, strings.Join(found.Plugins, ", "))
	if programs := found.Programs(own); len(programs) > 0 {
		message += "; each node needs the programs " + strings.Join(programs, ", ")
	}
	return model.Event{Reason: eventAccepted, Message: shortened(message)}
}

// invalid returns the event of a network with which every ADD fails.
func invalid(why []string) model.Event {
	return model.Event{Warning: true, Reason: eventInvalid, Message: shortened(strings.Join(why, "; "))}
}

// noFile reads no file: those that a configuration names are on the nodes.
func noFile(name string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// shortened limits a message.
func shortened(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
}
