// SPDX-License-Identifier: Apache-2.0

// Package node keeps the machines of a node's agent: it is asked over the agent's socket (package host is who asks),
// does it as host.Local does, and tells attach what of a pod's network is a machine's.
//
//	verbs    Start, Stop, List
//	attach   Compose: what a pod's namespace should be, with its machine; Records, Undo: before an attachment goes, and
//	         when an agent starts: the machines' records are in the ledger beside the attachments', and have one recovery
//	agent    Load, Serve: what an agent before this one had
//
// # Turns
//
// A call about a machine has the turn of its pod's sandbox, as ADD and DEL have, and then phase 1's of the machine.
//
// # Pods of others
//
// A pod that this agent has not attached may have a machine, too. Nobody tells when it goes, so that is looked at now
// and then.
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

// Memory is what is asked of the ledger.
type Memory interface {
	Keys(containerID string) ([]model.AttachmentKey, error)
	Get(k model.AttachmentKey) (attach.Record, bool, error)
	InNamespace(id uint64) ([]attach.Record, error)
}

// Config is what Machines are made of.
type Config struct {
	// Phase1 says where records are.
	Phase1 phase1.Config
	Memory Memory
	// Hold waits for a sandbox's turn.
	Hold func(ctx context.Context, container string) (release func(), err error)
	// Admit, which may be nil, makes what policies say of interfaces stand.
	Admit func(ctx context.Context, all ...model.WorkloadEndpoint) error
	// Own are the namespaces of the node itself, in which no machine is.
	Own []*netns.NS
	// Called, which may be nil, hears of each request that was answered.
	Called func(verb string, err error, took time.Duration)
	Log    *slog.Logger
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
}

// Machines are those of a node.
type Machines struct {
	cfg   Config
	local *host.Local

	mu sync.Mutex
	// in are the machines by the pods' sandboxes, "" for pods of others.
	in map[string][]phase1.Record
	// watching tells that pods of others are looked at; stop ends that.
	watching bool
	ctx      context.Context
	stop     context.CancelFunc
	group    sync.WaitGroup
}

// New makes Machines.
func New(cfg Config) *Machines {
	cfg.Log = cfg.Log.With("room", "vm")
	cfg.Phase1.Log = cfg.Log
	m := &Machines{cfg: cfg, local: host.NewLocal(cfg.Phase1), in: map[string][]phase1.Record{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Close ends what runs; the machines stay.
func (m *Machines) Close() error {
	m.stop()
	m.group.Wait()
	return m.local.Close()
}

// Start is the verb.
func (m *Machines) Start(ctx context.Context, ns *netns.NS, words []byte) ([]byte, error) {
	ask, err := parse(words)
	if err != nil {
		return nil, err
	}
	if ns == nil || ask.Input == nil {
		return nil, model.Faultf(model.CodeInvalidNetns, "", "%s: no machine, or no namespace of a pod", VerbStart)
	}
	record, err := m.start(ctx, host.Pod{NS: ns, ID: ask.ID, Root: ask.Root}, *ask.Input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(record)
}

func (m *Machines) start(ctx context.Context, pod host.Pod, in plan.Input) (phase1.Record, error) {
	container, release, records, err := m.turn(ctx, pod.NS)
	if err != nil {
		return phase1.Record{}, err
	}
	defer release()
	withDevices(&in, records)
	if err := m.guard(ctx, records); err != nil {
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
	same := func(o phase1.Record) bool { return o.Machine == record.Machine && o.In == record.In }
	known := slices.ContainsFunc(m.of(container), same)
	m.note(record)
	err = m.attend(record, pod.NS)
	if err != nil && !known { // it came with this call
		pod.ID = record.In
		if undo := m.local.Stop(context.WithoutCancel(ctx), pod, record.Machine); undo != nil {
			return phase1.Record{}, errors.Join(err, undo)
		}
		m.drop(record)
	}
	return record, err
}

// attend has a machine's wires given to weft-guest, if there are any.
func (m *Machines) attend(record phase1.Record, ns *netns.NS) error {
	if m.local.Attended(record.Machine, record.In) ||
		!slices.ContainsFunc(record.Networks, func(n phase1.Network) bool { return n.Guest != nil }) {
		return nil
	}
	ended, err := m.local.Attend(record, ns, host.GuestSocket)
	if err != nil {
		return fmt.Errorf("machine %s: %w", record.Machine, err)
	}
	m.group.Go(func() {
		select {
		case err := <-ended:
			if err != nil {
				m.cfg.Log.Error("wires are given no more", "machine", record.Machine, "err", err)
			}
		case <-m.ctx.Done(): // Close ends the giving itself, after this
		}
	})
	return nil
}

// turn waits for the turn of a pod and tells its sandbox and attachments, where the agent knows them.
func (m *Machines) turn(
	ctx context.Context, ns *netns.NS,
) (container string, release func(), records []attach.Record, err error) {
	id, err := ns.ID()
	if err != nil {
		return "", nil, nil, err
	}
	all, err := m.cfg.Memory.InNamespace(id)
	for _, r := range all {
		if r.Boot == m.cfg.Phase1.Boot {
			container = r.Request.ContainerID
		}
	}
	if container == "" {
		if err != nil { // it may be one that could not be read
			return "", nil, nil, err
		}
		release, err = m.cfg.Hold(ctx, "namespace "+ns.Path())
		return "", release, nil, err
	}
	if release, err = m.cfg.Hold(ctx, container); err != nil {
		return "", nil, nil, err
	}
	if records, err = m.attached(container); err != nil {
		release()
		return "", nil, nil, err
	}
	return container, release, records, nil
}

// attached are the attachments of a pod, all of them finished.
func (m *Machines) attached(container string) ([]attach.Record, error) {
	keys, err := m.cfg.Memory.Keys(container)
	if err != nil {
		return nil, err
	}
	var out []attach.Record
	for _, key := range keys {
		r, found, err := m.cfg.Memory.Get(key)
		if err != nil {
			return nil, err
		}
		if found && r.Stage == attach.Releasing {
			return nil, model.Faultf(model.CodeTryAgain, "", "attachment %s is %s", key, r.Stage)
		}
		if found && r.Stage == attach.Done {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, model.Faultf(model.CodeInvalidEnv, "make it anew",
			"pod %s has been detached from its networks meanwhile", container)
	}
	return out, nil
}

// Stop is the verb.
func (m *Machines) Stop(ctx context.Context, ns *netns.NS, words []byte) ([]byte, error) {
	ask, err := parse(words)
	if err != nil {
		return nil, err
	}
	pod := host.Pod{NS: ns, ID: ask.ID}
	name, err := pod.Name()
	if err != nil {
		return nil, err
	}
	record, found, err := m.cfg.Phase1.Read(ask.Machine, name)
	if err != nil || !found {
		return nil, err
	}
	release, err := m.cfg.Hold(ctx, turnOf(record))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := m.local.Stop(ctx, host.Pod{NS: ns, ID: record.In}, ask.Machine); err != nil {
		return nil, err
	}
	m.drop(record)
	return nil, nil
}

// turnOf is whose turn a machine's calls need.
func turnOf(r phase1.Record) string {
	if r.Container != "" {
		return r.Container
	}
	return "namespace " + r.Netns
}

// List is the verb.
func (m *Machines) List(ctx context.Context, _ *netns.NS, _ []byte) ([]byte, error) {
	all, err := m.local.List(ctx)
	if err != nil {
		m.cfg.Log.Warn("records of machines", "err", err)
	}
	if all == nil {
		all = []phase1.Record{}
	}
	return json.Marshal(all)
}

func parse(words []byte) (host.Ask, error) {
	var ask host.Ask
	if err := json.Unmarshal(words, &ask); err != nil {
		return ask, model.Faultf(model.CodeDecode, "", "question: %w", err)
	}
	return ask, nil
}
