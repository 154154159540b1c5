// SPDX-License-Identifier: Apache-2.0

// Package node has the registry of the VMs on a node, for the node's agent. It serves the VM calls of the agent's
// socket (package host is the client), executes them by host.Local, and reports to attach which part of a pod's network
// belongs to a VM.
//
//	verbs    Start, Stop, List
//	attach   Compose: the expected state of a pod's namespace with its VM; Records, Undo: before an attachment is
//	         released, and when an agent starts. The ledger has the records of VMs and of attachments, with one recovery
//	agent    Load, Serve: what an earlier agent left
//
// # Locks
//
// A call for a VM holds the lock of its pod's sandbox, as ADD and DEL do, and then phase 1's lock of the VM.
//
// # Foreign pods
//
// A pod that this agent has not attached may have a VM, too. The agent is not notified when such a pod ends, so it
// polls.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// AttachmentStore is the part of the ledger that a Registry reads.
type AttachmentStore interface {
	Keys(containerID string) ([]model.AttachmentKey, error)
	Get(k model.AttachmentKey) (attach.Record, bool, error)
	InNamespace(id uint64) ([]attach.Record, error)
}

// Config configures a Registry.
type Config struct {
	// Phase1 has the record store.
	Phase1      phase1.Config
	Attachments AttachmentStore
	// LockSandbox acquires a sandbox's lock.
	LockSandbox func(ctx context.Context, container string) (release func(), err error)
	// Admit, if set, returns once policy is enforced on the interfaces.
	Admit func(ctx context.Context, all ...model.WorkloadEndpoint) error
	// Own are the namespaces of the node itself, which cannot have a VM.
	Own []*netns.NS
	// Called, if set, is called after every request, with its error.
	Called func(verb string, err error, took time.Duration)
	// Deletions, which may be nil, reports deleted namespaces of pods, so that nothing is kept open in them.
	Deletions *netns.Deletions
	Log       *slog.Logger
	Now       func() time.Time
	After     func(time.Duration) <-chan time.Time
}

// Registry is the registry of a node's VMs.
type Registry struct {
	cfg   Config
	local *host.Local

	mu sync.Mutex
	// bySandbox has the records by the sandbox ID of the pod, "" for foreign pods.
	bySandbox map[string][]phase1.Record
	// watching: watch runs; stop ends it.
	watching bool
	ctx      context.Context
	stop     context.CancelFunc
	group    sync.WaitGroup
}

// New returns a Registry.
func New(cfg Config) *Registry {
	cfg.Log = cfg.Log.With("component", "vm")
	cfg.Phase1.Log = cfg.Log
	m := &Registry{cfg: cfg, local: host.NewLocal(cfg.Phase1), bySandbox: map[string][]phase1.Record{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Close ends all goroutines; the VMs keep their networks.
func (m *Registry) Close() error {
	m.stop()
	m.group.Wait()
	return m.local.Close()
}

// Start is the verb vm-start.
func (m *Registry) Start(ctx context.Context, ns *netns.NS, body []byte) ([]byte, error) {
	req, err := parseRequest(body)
	if err != nil {
		return nil, err
	}
	if ns == nil || req.Input == nil {
		return nil, model.Errorf(model.CodeInvalidNetns, "", "%s: the VM or the pod's namespace is missing", VerbStart)
	}
	record, err := m.start(ctx, host.Pod{NS: ns, ID: req.ID, Root: req.Root}, *req.Input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(record)
}

func (m *Registry) start(ctx context.Context, pod host.Pod, in plan.Input) (phase1.Record, error) {
	container, release, records, err := m.lockPod(ctx, pod.NS)
	if err != nil {
		return phase1.Record{}, err
	}
	defer release()
	addDevices(&in, records)
	if err := m.admit(ctx, records); err != nil {
		return phase1.Record{}, err
	}
	in.Attached = map[string][]state.Table{}
	for _, r := range records {
		in.Attached[r.Request.IfName] = r.Fragment().Host.Tables
	}
	record, err := m.local.StartIn(ctx, pod, in, container)
	if err != nil {
		return phase1.Record{}, err
	}
	same := func(o phase1.Record) bool { return o.VM == record.VM && o.PodID == record.PodID }
	known := slices.ContainsFunc(m.inSandbox(container), same)
	m.put(record)
	err = m.serveGuests(record, pod.NS)
	if err != nil && !known { // this call added it
		pod.ID = record.PodID
		if undo := m.local.Stop(context.WithoutCancel(ctx), pod, record.VM); undo != nil {
			return phase1.Record{}, errors.Join(err, undo)
		}
		m.remove(record)
	}
	return record, err
}

// serveGuests starts to serve weft-guest in the VM's pod, if a guest needs it.
func (m *Registry) serveGuests(record phase1.Record, ns *netns.NS) error {
	if m.local.Serving(record.VM, record.PodID) ||
		!slices.ContainsFunc(record.Networks, func(n phase1.Network) bool { return n.Guest != nil }) {
		return nil
	}
	ended, err := m.local.StartServing(record, ns, host.GuestSocket)
	if err != nil {
		return fmt.Errorf("VM %s: %w", record.VM, err)
	}
	unwatch := m.stopServingWhenDeleted(record, ns)
	m.group.Go(func() {
		defer unwatch()
		select {
		case err := <-ended:
			if err != nil {
				m.cfg.Log.Error("weft-guest is no longer served", "vm", record.VM, "err", err)
			}
		case <-m.ctx.Done(): // after this, Close stops serving
		}
	})
	return nil
}

// lockPod acquires the lock of a pod's sandbox. It returns the sandbox and its attachments, if the agent attached the
// pod.
func (m *Registry) lockPod(
	ctx context.Context, ns *netns.NS,
) (container string, release func(), records []attach.Record, err error) {
	id, err := ns.ID()
	if err != nil {
		return "", nil, nil, err
	}
	all, err := m.cfg.Attachments.InNamespace(id)
	for _, r := range all {
		if r.Boot == m.cfg.Phase1.Boot {
			container = r.Request.ContainerID
		}
	}
	if container == "" {
		if err != nil { // the pod's record may be unreadable
			return "", nil, nil, err
		}
		release, err = m.cfg.LockSandbox(ctx, "namespace "+ns.Path())
		return "", release, nil, err
	}
	if release, err = m.cfg.LockSandbox(ctx, container); err != nil {
		return "", nil, nil, err
	}
	if records, err = m.attached(container); err != nil {
		release()
		return "", nil, nil, err
	}
	return container, release, records, nil
}

// attached returns the attachments of a pod, all of them finished.
func (m *Registry) attached(container string) ([]attach.Record, error) {
	keys, err := m.cfg.Attachments.Keys(container)
	if err != nil {
		return nil, err
	}
	var out []attach.Record
	for _, key := range keys {
		r, found, err := m.cfg.Attachments.Get(key)
		if err != nil {
			return nil, err
		}
		if found && r.Stage == attach.Releasing {
			return nil, model.Errorf(model.CodeTryAgain, "", "attachment %s is %s", key, r.Stage)
		}
		if found && r.Stage == attach.Done {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, model.Errorf(model.CodeInvalidEnv, "re-create the pod",
			"pod %s was detached from its networks during the call", container)
	}
	return out, nil
}

// Stop is the verb vm-stop.
func (m *Registry) Stop(ctx context.Context, ns *netns.NS, body []byte) ([]byte, error) {
	req, err := parseRequest(body)
	if err != nil {
		return nil, err
	}
	pod := host.Pod{NS: ns, ID: req.ID}
	name, err := pod.Identity()
	if err != nil {
		return nil, err
	}
	record, found, err := m.cfg.Phase1.Read(req.VM, name)
	if err != nil || !found {
		return nil, err
	}
	release, err := m.cfg.LockSandbox(ctx, lockOf(record))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := m.local.Stop(ctx, host.Pod{NS: ns, ID: record.PodID}, req.VM); err != nil {
		return nil, err
	}
	m.remove(record)
	return nil, nil
}

// lockOf returns the name of the sandbox lock for calls for a VM.
func lockOf(r phase1.Record) string {
	if r.Container != "" {
		return r.Container
	}
	return "namespace " + r.Netns
}

// List is the verb vm-list.
func (m *Registry) List(ctx context.Context, _ *netns.NS, _ []byte) ([]byte, error) {
	all, err := m.local.List(ctx)
	if err != nil {
		m.cfg.Log.Warn("records of VMs are unreadable", "err", err)
	}
	if all == nil {
		all = []phase1.Record{}
	}
	return json.Marshal(all)
}

func parseRequest(body []byte) (host.Request, error) {
	var req host.Request
	if err := json.Unmarshal(body, &req); err != nil {
		return req, model.Errorf(model.CodeDecode, "", "request: %w", err)
	}
	return req, nil
}
