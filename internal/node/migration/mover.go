// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// Attachments switches attachments.
type Attachments interface {
	Activate(ctx context.Context, key model.AttachmentKey) error
	Retire(ctx context.Context, key model.AttachmentKey) error
}

// Records reads the recorded attachments.
type Records interface {
	Get(key model.AttachmentKey) (attach.Record, bool, error)
	List() ([]attach.Record, error)
}

// Config configures a Mover.
type Config struct {
	Node        string
	Attachments Attachments
	Records     Records
	// Objects is the datastore of moves.
	Objects store.Objects
	// Cluster returns the current snapshot, nil before it is known.
	Cluster func() *model.Cluster
	// Holds reports whether this node has an address according to its own writes.
	Holds func(netip.Addr) bool
	// Host is the node's network namespace, which is that of this process.
	Host  *kernel.Conn
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Event, which may be nil, creates an event on a pod.
	Event func(model.PodRef, model.Event)
	// RelaysChanged, which may be nil, is called when the result of Relays has changed.
	RelaysChanged func()
	// RelayFile is the file in which relays are saved for the next agent; empty is none.
	RelayFile string
}

// Mover handles the attachments of VMs. Without any, it does nothing and reads nothing from the datastore.
type Mover struct {
	cfg     Config
	changed notify.Chan

	mu        sync.Mutex
	followers map[model.AttachmentKey]*vmFollower
	// departed are the followers that ended while the VM was here: a target node may begin to await it a moment later.
	departed []*vmFollower
	moves    map[store.Key]knownMove
	synced   bool
	// before are the relays of the previous agent, until the attachments are known.
	before []savedRelay
	// saving is locked while the file is written.
	saving sync.Mutex
}

// New returns a Mover.
func New(cfg Config) *Mover {
	cfg.Log = cfg.Log.With("component", "migration")
	m := &Mover{
		cfg: cfg, changed: notify.New(),
		followers: map[model.AttachmentKey]*vmFollower{}, moves: map[store.Key]knownMove{},
	}
	m.before = m.loadRelays()
	return m
}

// Moved reports that an attachment of a VM was added, deleted, or switched. It returns at once.
func (m *Mover) Moved(model.AttachmentKey) { m.changed.Notify() }

// Passed reports that the mesh's routes agree with the cluster. It returns at once.
func (m *Mover) Passed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.followers {
		f.wake.Notify()
	}
}

// Run runs until ctx ends.
func (m *Mover) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.changed.Notify()
	var events <-chan store.Event
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
			if err := m.scan(ctx, &parts); err != nil {
				m.cfg.Log.Warn("attachments of VMs could not be read", "err", err)
			}
		case <-again:
			again = nil
		case e, ok := <-events:
			if !ok {
				events, again = nil, m.cfg.After(watchAgain)
				continue
			}
			for _, stale := range m.handleEvent(e) {
				parts.Go(func() { m.deleteMove(ctx, stale) }) // of the previous agent, or of a deleted attachment
			}
			if e.Type == store.Added {
				parts.Go(func() { m.markDeparted(ctx, e.Object) })
			}
		}
		if events == nil && again == nil && m.busy() {
			var err error
			if events, err = m.cfg.Objects.Watch(ctx, store.AddressMoves()); err != nil {
				m.cfg.Log.Warn("moves could not be watched, and migrating VMs lose their connections", "err", err)
				events, again = nil, m.cfg.After(watchAgain)
			}
		}
	}
}

// busy reports whether there is any VM.
func (m *Mover) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.followers) > 0
}

// scan starts followers for new attachments of VMs, and wakes the others.
func (m *Mover) scan(ctx context.Context, parts *sync.WaitGroup) error {
	records, err := m.cfg.Records.List()
	if err != nil && len(records) == 0 {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[model.AttachmentKey]int64{}
	for _, rec := range records {
		if rec.Stage != attach.Done || rec.Request.VM() == nil || rec.HostLink() == "" || len(rec.Addrs()) == 0 {
			continue // no VM's, or one that needs no switch
		}
		there[rec.Key()] = rec.Serial
		if f := m.followers[rec.Key()]; f != nil && f.serial == rec.Serial {
			f.wake.Notify()
			continue
		}
		f := newVMFollower(m, rec)
		f.relay.Store(m.relayBeforeLocked(rec))
		m.endLocked(rec.Key())
		m.followers[rec.Key()] = f
		parts.Go(func() { f.run(ctx) })
	}
	for key, f := range m.followers {
		if serial, is := there[key]; !is || serial != f.serial {
			m.endLocked(key)
		}
	}
	m.before = nil
	return nil
}

// endLocked ends the follower of a deleted attachment.
func (m *Mover) endLocked(key model.AttachmentKey) {
	if f := m.followers[key]; f != nil {
		close(f.gone)
		delete(m.followers, key)
	}
}

// rememberDeparted remembers for a while that a VM was here when its attachment ended.
func (m *Mover) rememberDeparted(f *vmFollower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.leaves()
	m.departed = append(slices.DeleteFunc(m.departed, func(o *vmFollower) bool {
		return o.leftFor() > remembered
	}), f)
}

// markDeparted writes into a move of a VM that was here, and is not any more, that it has left.
func (m *Mover) markDeparted(ctx context.Context, o store.Object) {
	move, err := o.AddressMove()
	if err != nil || move.Target == m.cfg.Node || move.TargetPod != "" {
		return
	}
	m.mu.Lock()
	var was *vmFollower
	about := func(f *vmFollower) bool { return slices.ContainsFunc(move.Addrs, f.own) }
	for _, f := range m.departed {
		if about(f) && f.leftFor() <= remembered {
			was = f
		}
	}
	for _, f := range m.followers {
		if about(f) {
			was = nil // the VM has another pod here
		}
	}
	m.mu.Unlock()
	if was != nil {
		was.updateMove(ctx, nil, true)
	}
}

// Switch switches a VM's attachments on this node that are of the pod, as if a packet of the VM had been received.
// Without a pod's name all of them must be of one container.
func (m *Mover) Switch(vm model.VMRef, pod string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var these []*vmFollower
	var pods []string
	for _, f := range m.followers {
		if f.vm.Namespace == vm.Namespace && f.vm.Name == vm.Name && (pod == "" || f.pod == pod) {
			these = append(these, f)
			if name := cmp.Or(f.pod, "container "+f.key.ContainerID); !slices.Contains(pods, name) {
				pods = append(pods, name)
			}
		}
	}
	slices.Sort(pods)
	switch {
	case len(these) == 0:
		return model.Errorf(model.CodeUnknownContainer, "`weft vm moves` lists those that can be switched",
			"VM %s/%s has no attachment on this node that can be switched", vm.Namespace, vm.Name)
	case len(pods) > 1:
		return model.Errorf(model.CodeInvalidConf, "name the VM's pod with --pod",
			"VM %s/%s has more than one pod on this node: %s",
			vm.Namespace, vm.Name, strings.Join(pods, ", "))
	}
	for _, f := range these {
		f.reported.Notify()
	}
	return nil
}
