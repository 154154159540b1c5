// SPDX-License-Identifier: Apache-2.0

package move

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

// Attachments are what a Mover switches.
type Attachments interface {
	Activate(ctx context.Context, key model.AttachmentKey) error
	Retire(ctx context.Context, key model.AttachmentKey) error
}

// Records are what attachments there are.
type Records interface {
	Get(key model.AttachmentKey) (attach.Record, bool, error)
	List() ([]attach.Record, error)
}

// Config is what a Mover is made of.
type Config struct {
	Node        string
	Attachments Attachments
	Records     Records
	// Objects is where moves are kept.
	Objects store.Objects
	// Cluster is what is known of the cluster's blocks, nil before anything is.
	Cluster func() *model.Cluster
	// Holds tells whether this node has the say about an address, by what it has itself written.
	Holds func(netip.Addr) bool
	// Host is the node's namespace, the one this process is in.
	Host  *kernel.Conn
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// RelaysChanged, which may be nil, is called when Relays differs.
	RelaysChanged func()
	// RelayFile is where relays stand for the agent after this one; empty is nowhere.
	RelayFile string
}

// Mover follows the attachments of virtual machines. Without any, it does nothing and nobody is asked.
type Mover struct {
	cfg  Config
	news notify.Chan

	mu        sync.Mutex
	followers map[model.AttachmentKey]*follower
	// departed are those that have ended while the machine was there: who awaits it elsewhere may say so a moment later.
	departed []*follower
	moves    map[store.Key]noted
	synced   bool
	// before are the relays of the agent before this one, until the attachments are known.
	before []savedRelay
	// saving is held while the file is written.
	saving sync.Mutex
}

// New makes a Mover.
func New(cfg Config) *Mover {
	cfg.Log = cfg.Log.With("room", "move")
	m := &Mover{
		cfg: cfg, news: notify.New(),
		followers: map[model.AttachmentKey]*follower{}, moves: map[store.Key]noted{},
	}
	m.before = m.loadRelays()
	return m
}

// Moved tells that an attachment of a machine came, went, or changed sides. It returns at once.
func (m *Mover) Moved(model.AttachmentKey) { m.news.Notify() }

// Passed tells that the mesh leads to where the cluster says. It returns at once.
func (m *Mover) Passed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.followers {
		f.wake.Notify()
	}
}

// Run follows until ctx ends.
func (m *Mover) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.news.Notify()
	var events <-chan store.Event
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.news:
			if err := m.survey(ctx, &parts); err != nil {
				m.cfg.Log.Warn("machines are not followed", "err", err)
			}
		case <-again:
			again = nil
		case e, ok := <-events:
			if !ok {
				events, again = nil, m.cfg.After(watchAgain)
				continue
			}
			for _, stale := range m.take(e) {
				parts.Go(func() { m.forget(ctx, stale) }) // of an agent before, or of an attachment that is no more
			}
			if e.Type == store.Added {
				parts.Go(func() { m.tellOfDeparted(ctx, e.Object) })
			}
		}
		if events == nil && again == nil && m.busy() {
			var err error
			if events, err = m.cfg.Objects.Watch(ctx, store.AddressMoves()); err != nil {
				m.cfg.Log.Warn("connections of machines that migrate stay behind", "err", err)
				events, again = nil, m.cfg.After(watchAgain)
			}
		}
	}
}

// busy tells whether there is a machine at all.
func (m *Mover) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.followers) > 0
}

// survey begins to follow the machines' attachments that are new, and tells the others to look again.
func (m *Mover) survey(ctx context.Context, parts *sync.WaitGroup) error {
	records, err := m.cfg.Records.List()
	if err != nil && len(records) == 0 {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[model.AttachmentKey]int64{}
	for _, rec := range records {
		if rec.Stage != attach.Done || rec.Request.VM() == nil || rec.HostLink() == "" || len(rec.Addrs()) == 0 {
			continue // nobody's, or the wire itself finds the machine
		}
		there[rec.Key()] = rec.Serial
		if f := m.followers[rec.Key()]; f != nil && f.serial == rec.Serial {
			f.wake.Notify()
			continue
		}
		f := newFollower(m, rec)
		f.relay.Store(m.relayBefore(rec))
		m.end(rec.Key())
		m.followers[rec.Key()] = f
		parts.Go(func() { f.run(ctx) })
	}
	for key, f := range m.followers {
		if serial, is := there[key]; !is || serial != f.serial {
			m.end(key)
		}
	}
	m.before = nil
	return nil
}

// end tells a follower that its attachment is no more; the caller holds the lock.
func (m *Mover) end(key model.AttachmentKey) {
	if f := m.followers[key]; f != nil {
		close(f.gone)
		delete(m.followers, key)
	}
}

// departs remembers for a while that a machine was here when its attachment ended.
func (m *Mover) departs(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.left.Store(m.cfg.Now().UnixNano())
	m.departed = append(slices.DeleteFunc(m.departed, func(o *follower) bool {
		return m.cfg.Now().Sub(time.Unix(0, o.left.Load())) > remembered
	}), f)
}

// tellOfDeparted tells who begins to await a machine that was here, and is no more, that it has left.
func (m *Mover) tellOfDeparted(ctx context.Context, o store.Object) {
	move, err := o.AddressMove()
	if err != nil || move.Target == m.cfg.Node || move.TargetPod != "" {
		return
	}
	m.mu.Lock()
	var was *follower
	about := func(f *follower) bool { return slices.ContainsFunc(move.Addrs, f.own) }
	for _, f := range m.departed {
		if about(f) && m.cfg.Now().Sub(time.Unix(0, f.left.Load())) <= remembered {
			was = f
		}
	}
	for _, f := range m.followers {
		if about(f) {
			was = nil // the machine has another pod here
		}
	}
	m.mu.Unlock()
	if was != nil {
		was.say(ctx, nil, true)
	}
}

// Switch has a machine's attachments on this node that are of the pod switch, as if the machine had been heard. Without
// a pod's name all of them must be of one container.
func (m *Mover) Switch(vm model.VMRef, pod string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var these []*follower
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
		return model.Faultf(model.CodeUnknownContainer, "`weft vm moves` lists those that can be switched",
			"machine %s/%s has no attachment on this node that can be switched", vm.Namespace, vm.Name)
	case len(pods) > 1:
		return model.Faultf(model.CodeInvalidConf, "name the machine's pod with --pod",
			"machine %s/%s has several pods on this node: %s",
			vm.Namespace, vm.Name, strings.Join(pods, ", "))
	}
	for _, f := range these {
		f.told.Notify()
	}
	return nil
}
