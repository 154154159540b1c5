// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const (
	// undoTime is how long the undo of a failed or given up ADD may take, whatever is left of the caller's patience.
	undoTime = 30 * time.Second
	// lateUndoTime is that of an ADD whose own time is over: its caller waits but a few seconds more to be told why. What is
	// not undone then, because a plugin hangs, is undone at the DEL that follows.
	lateUndoTime = 3 * time.Second
	// recoverTime is how long the undo of one record may take when an agent starts.
	recoverTime = 15 * time.Second
	// linger is how long an agent keeps a bridge or a table without owners, because the next ADD will want it.
	linger = 500 * time.Millisecond
)

// Config is what an Attacher is made of.
type Config struct {
	Memory Memory
	// Locks keep calls apart; nil means within this process.
	Locks Locks
	// Host is the node's namespace, the one this process is in.
	Host       *kernel.Conn
	Planners   map[string]plugin.Planner
	Allocators map[string]ipam.Allocator
	// Exec executes the plugins that are not built in.
	Exec *foreign.Runner
	// Reaper deletes dead links behind a DEL's answer and must be running. With it the Attacher is an agent's: the same ADD
	// again gets the same answer, and shared objects go with their last owner. Nil: a standalone plugin's, everything is
	// synchronous and as the reference plugins do it.
	Reaper *kernel.Reaper
	// Guard, which may be nil, is told of each interface before it is made and after it has gone.
	Guard Guard
	// Machines, which may be nil, knows the virtual machines in containers.
	Machines Machines
	Log      *slog.Logger
	Now      func() time.Time
	// Boot is the machine's boot id.
	Boot string
	// Step, which may be nil, is called before and after each thing that is done. Its error is that thing's error: for
	// fault tests.
	Step func(name string) error
	// Repaired, which may be nil, is called with what was put back, as differences name it.
	Repaired func(things []string)
	// Event, which may be nil, reports to the pod's readers that something of its network went twice within ten minutes. It
	// returns at once.
	Event func(pod model.PodRef, e model.Event)
	// Gates, which may be nil, waits until what URLs lead to is ready.
	Gates func(ctx context.Context, urls []string) error
	// Node, which may be nil, tells what the cluster says of this node.
	Node func() Node
	// Moved, which may be nil, is told of attachments of virtual machines: when one is done or gone, and when it has begun or ended to
	// stand by. It returns at once.
	Moved func(key model.AttachmentKey)
	// Elsewhere, which may be nil, refuses an address that a pod brings along where another node has it.
	Elsewhere func(ctx context.Context, addr netip.Addr, pod model.PodRef) error
	// Linger is how long shared objects without owners stay (agent); 0 means the default.
	Linger time.Duration
}

// Attacher attaches containers to networks. It is safe for concurrent use.
type Attacher struct {
	cfg     Config
	hostID  func() (uint64, error)
	mourn   mourners
	brought brought
	marked  marked
	known   known
	index   *objectIndex
	drifts  drifts
	queue   *repairQueue
	// doubted are the doubts of plans that were told.
	doubted sync.Map
	// ipamOnly are the locks of jobs that allocate addresses for other vendors' plugins; see locks.
	ipamOnly Locks
}

// New makes an Attacher.
func New(cfg Config) *Attacher {
	if cfg.Locks == nil {
		cfg.Locks = newMemoryLocks()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Exec == nil {
		cfg.Exec = &foreign.Runner{}
	}
	if cfg.Linger == 0 {
		cfg.Linger = linger
	}
	cfg.Log = cfg.Log.With("room", "attach")
	a := &Attacher{cfg: cfg, hostID: sync.OnceValues(hostID), index: newObjectIndex(), queue: newRepairQueue(), ipamOnly: newMemoryLocks()}
	a.mourn.owners = map[string]map[model.AttachmentKey]int64{}
	a.mourn.resting = map[string]int{}
	a.mourn.wake = make(chan struct{}, 1)
	return a
}

// Job is what one call is about.
type Job struct {
	Network model.Network
	Request model.Request
	// Prev is the result that the caller handed in.
	Prev *model.Result
	// Netns is the container's namespace, nil when it is gone.
	Netns *netns.NS
	// OwnNetns permits that Netns is the node's own (CNI_NETNS_OVERRIDE).
	OwnNetns bool
	// NamespaceLabels are those of the pod's namespace, nil where they are not known.
	NamespaceLabels map[string]string
	// Parallel permits AddAll to execute foreign plugins beside those of its neighbours that permit it, too.
	Parallel bool

	// saves are the delegates to be remembered; see unfold.
	saves []save
}

func (a *Attacher) step(name string) error {
	if a.cfg.Step == nil {
		return nil
	}
	return a.cfg.Step(name)
}

func hostID() (uint64, error) {
	ns, err := netns.Current()
	if err != nil {
		return 0, err
	}
	defer func() { _ = ns.Close() }()
	return ns.ID()
}

// netnsID names the job's namespace and refuses the node's own.
func (a *Attacher) netnsID(job Job) (uint64, error) {
	if job.Netns == nil {
		return 0, nil
	}
	id, err := job.Netns.ID()
	if err != nil {
		return 0, err
	}
	own, err := a.hostID()
	if err != nil {
		return 0, err
	}
	if id == own && !job.OwnNetns {
		return 0, model.Faultf(model.CodeInvalidNetns, "name the container's namespace, or set CNI_NETNS_OVERRIDE=1",
			"CNI_NETNS %q is the namespace of the node itself", job.Request.Netns)
	}
	return id, nil
}

// spaces opens the container's namespace beside the node's.
func (a *Attacher) spaces(ns *netns.NS) (kernel.Spaces, func(), error) {
	s := kernel.Spaces{Host: a.cfg.Host, PodNS: ns}
	if ns == nil {
		return s, func() {}, nil
	}
	pod, err := kernel.Dial(ns)
	if err != nil {
		return s, nil, fmt.Errorf("namespace %s: %w", ns.Path(), err)
	}
	s.Pod = pod
	return s, func() { _ = pod.Close() }, nil
}

// put writes records and remembers their owners.
func (a *Attacher) put(records ...Record) error {
	if err := a.cfg.Memory.Put(records...); err != nil {
		return err
	}
	for _, r := range records {
		a.mourn.born(r)
		a.noted(r)
	}
	return nil
}

// noted has the reconciler of attachments watch a finished attachment, and no other.
func (a *Attacher) noted(r Record) {
	if a.cfg.Reaper == nil {
		return
	}
	if a.index.note(r, r.Stage == Done && !r.Turning && r.Boot == a.cfg.Boot) {
		a.queue.rouse()
	}
}

// forget removes a record.
func (a *Attacher) forget(k model.AttachmentKey) error {
	if err := a.step("before forget"); err != nil {
		return err
	}
	if err := a.cfg.Memory.Delete(k); err != nil {
		return err
	}
	a.mourn.gone(k)
	a.brought.drop(k)
	a.marked.drop(k)
	a.index.drop(k)
	a.drifts.drop(k)
	return nil
}

// patient is ctx for work that must be finished when the caller has given up.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := undoTime
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		limit = lateUndoTime
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
