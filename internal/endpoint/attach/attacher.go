// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/plugin"
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
	// Reaper deletes dead links behind a DEL's answer and must be running. With it the Attacher is an agent's: the same
	// ADD again gets the same answer, and shared objects go with their last owner. Nil: a standalone plugin's, everything
	// is synchronous and as the reference plugins do it.
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
	Step failpoint.Hook
	// Repaired, which may be nil, is called with what was put back, as differences name it.
	Repaired func(things []string)
	// Event, which may be nil, reports to the pod's readers that something of its network went twice within ten minutes.
	// It returns at once.
	Event func(pod model.PodRef, e model.Event)
	// Gates, which may be nil, waits until what URLs lead to is ready.
	Gates func(ctx context.Context, urls []string) error
	// Node, which may be nil, tells what the cluster says of this node.
	Node func() Node
	// Moved, which may be nil, is told of attachments of virtual machines: when one is done or gone, and when it has begun
	// or ended to stand by. It returns at once.
	Moved func(key model.AttachmentKey)
	// Elsewhere, which may be nil, refuses an address that a pod brings along where another node has it.
	Elsewhere func(ctx context.Context, addr netip.Addr, pod model.PodRef) error
	// Linger is how long shared objects without owners stay (agent); 0 means the default.
	Linger time.Duration
}

// Attacher attaches containers to networks. It is safe for concurrent use. What it does its parts do; each of them says
// what it needs.
type Attacher struct {
	locks *lockSet

	unmanaged *unmanaged
	dscp      *dscpMarks
	adder     *adder
	deleter   *deleter
	queue     *releaseQueue
	checker   *checker
	collector *collector
	recoverer *recoverer
	repairer  *repairer
	switcher  *switcher
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
	log, host, boot, now, fail := cfg.Log.With("room", "attach"), cfg.Host, cfg.Boot, cfg.Now, cfg.Step
	agent := cfg.Reaper != nil

	// What all know: what is remembered, who waits for whom, what a configuration means.
	records := &recordStore{memory: cfg.Memory, fail: fail}
	locks := &lockSet{main: cfg.Locks, ipamOnly: newMemoryLocks()}
	owners := &owners{of: map[string]map[model.AttachmentKey]int64{}}
	cooling := &cooling{of: map[string]int{}}
	namespaces := &namespaces{host: host, boot: boot, hostID: sync.OnceValues(hostID)}
	delegates := &delegator{exec: cfg.Exec}
	catalog := &catalog{planners: cfg.Planners, allocators: cfg.Allocators, delegates: delegates}
	resolver := &resolver{catalog: catalog, node: cfg.Node, records: records}
	machines := &machinesIn{known: cfg.Machines, boot: boot, log: log}
	hook := &policyHook{guard: cfg.Guard, machines: machines, notify: cfg.Moved, fail: fail}
	unmanaged := &unmanaged{catalog: catalog, records: records, boot: boot, elsewhere: cfg.Elsewhere}
	dscp := &dscpMarks{catalog: catalog}

	// What is done with an attachment.
	undoer := &undoer{
		host: host, boot: boot, locks: locks, records: records, catalog: catalog, delegates: delegates,
		machines: machines, hook: hook,
		agent: agent, reaper: cfg.Reaper, log: log, fail: fail,
	}
	queue := &releaseQueue{
		owners: owners, cooling: cooling, locks: locks, records: records, undoer: undoer, reaper: cfg.Reaper,
		linger: cfg.Linger,
		now:    now, log: log, wake: notify.New(),
	}
	repairer := &repairer{
		host: host, boot: boot, agent: agent, namespaces: namespaces, locks: locks, records: records, machines: machines,
		repaired: cfg.Repaired, event: cfg.Event, log: log, now: now, fail: fail, index: newObjectIndex(),
		queue: newRepairQueue(),
	}
	records.written = []func(Record){owners.written, repairer.written}
	records.forgotten = []func(model.AttachmentKey){owners.forgotten, unmanaged.drop, dscp.drop, repairer.forgotten}
	return &Attacher{
		locks: locks, unmanaged: unmanaged, dscp: dscp, queue: queue, repairer: repairer,
		adder: &adder{
			boot: boot, agent: agent, namespaces: namespaces, locks: locks, records: records, catalog: catalog,
			resolver:  resolver,
			delegates: delegates, hook: hook, unmanaged: unmanaged, dscp: dscp, undoer: undoer, cooling: cooling,
			reaper: cfg.Reaper, gates: cfg.Gates, log: log, now: now, fail: fail,
			settler: &settler{
				boot: boot, agent: agent, namespaces: namespaces, records: records, machines: machines, undoer: undoer, log: log,
			},
		},
		deleter: &deleter{
			agent: agent, boot: boot, namespaces: namespaces, locks: locks, records: records, catalog: catalog,
			machines:  machines,
			unmanaged: unmanaged, dscp: dscp, undoer: undoer, cooling: cooling, queue: queue, log: log, fail: fail,
			deriver: &deriver{
				host: host, namespaces: namespaces, catalog: catalog, resolver: resolver, delegates: delegates,
				undoer: undoer, log: log,
			},
		},
		checker: &checker{
			host: host, boot: boot, agent: agent, namespaces: namespaces, locks: locks, records: records, catalog: catalog,
			resolver: resolver, delegates: delegates, machines: machines,
		},
		collector: &collector{
			host: host, boot: boot, namespaces: namespaces, locks: locks, records: records, catalog: catalog, resolver: resolver,
			delegates: delegates, undoer: undoer,
		},
		recoverer: &recoverer{
			boot: boot, namespaces: namespaces, locks: locks, records: records, owners: owners, repairer: repairer,
			unmanaged: unmanaged, dscp: dscp, machines: machines, undoer: undoer,
		},
		switcher: &switcher{host: host, boot: boot, locks: locks, records: records, catalog: catalog, hook: hook, fail: fail},
	}
}

// Add attaches a container to a network. When it fails, everything that it did is undone.
func (a *Attacher) Add(ctx context.Context, job Job) (model.Result, error) {
	results, _, err := a.AddAll(ctx, []Job{job})
	if err != nil {
		return model.Result{}, err
	}
	return results[0], nil
}

// AddAll attaches one container to one or several networks, all or none. Neighbors in the list that are built in and
// have nothing of the node in common are planned one after the other and applied at once. failed is the job whose error
// it is.
func (a *Attacher) AddAll(ctx context.Context, jobs []Job) (results []model.Result, failed int, err error) {
	return a.adder.addAll(ctx, jobs)
}

// Del undoes an attachment. It works from the record alone: neither the namespace nor the configuration of the call is
// needed. Without a record it does what the configuration lets it find. Nothing to undo is no error.
func (a *Attacher) Del(ctx context.Context, job Job) error { return a.DelAll(ctx, []Job{job})[0] }

// DelAll undoes one or several attachments of one container; the errors are those of the jobs.
func (a *Attacher) DelAll(ctx context.Context, jobs []Job) []error {
	return a.deleter.delAll(ctx, jobs)
}

// Drain waits until nothing is left to look after, without lingering. An agent calls it before it stops.
func (a *Attacher) Drain(ctx context.Context) error { return a.queue.drain(ctx) }

// Check reports whether an attachment is still as its ADD left it. The error lists what differs.
func (a *Attacher) Check(ctx context.Context, job Job) error { return a.checker.check(ctx, job) }

// CheckAll checks every finished attachment, as its runtime would, until ctx ends. It changes nothing.
func (a *Attacher) CheckAll(ctx context.Context) (model.CheckReport, error) {
	return a.checker.checkAll(ctx)
}

// Status reports whether an ADD to the network could succeed. It changes nothing.
func (a *Attacher) Status(ctx context.Context, job Job) error { return a.checker.status(ctx, job) }

// GC undoes every attachment of the network that is not valid, and whatever a killed call left.
func (a *Attacher) GC(ctx context.Context, job Job, valid []model.AttachmentKey) error {
	return a.collector.gc(ctx, job, valid)
}

// Recover brings memory and kernel together when an agent starts, before it takes calls: what was not finished is
// undone, what an earlier boot left is forgotten and its addresses are free. The reaper must be running.
func (a *Attacher) Recover(ctx context.Context) (Report, error) { return a.recoverer.run(ctx) }

// Leftover undoes what a killed call left, unless it is finished or gone by now. The caller holds the container's lock.
func (a *Attacher) Leftover(ctx context.Context, rec Record) error {
	return a.recoverer.leftover(ctx, rec)
}

// Reconcile puts back what is taken away of finished attachments, until ctx ends.
func (a *Attacher) Reconcile(ctx context.Context, c Reconciling) error {
	return a.repairer.reconcile(ctx, c)
}

// Repair brings one finished attachment back to what its ADD has left, as far as the policy of repairs says so, and
// reports whether it differed. An attachment that is not finished, or whose pod has gone, has no other drift than in
// its rules on the node.
func (a *Attacher) Repair(ctx context.Context, key model.AttachmentKey) (drifted bool, err error) {
	return a.repairer.repair(ctx, key, repairWait, wholeAttachment, false)
}

// RepairRules puts back what others have taken away of the attachments' rules on the node. With slowOnly it looks only
// at attachments with rules of the iptables programs and of firewalld, which report nothing. A second RepairRules
// writes nothing.
func (a *Attacher) RepairRules(ctx context.Context, slowOnly bool) error {
	return a.repairer.repairAllRules(ctx, slowOnly)
}

// Activate has a finished attachment that stood by take its addresses over. Of one that has them already all of it is
// made sure of once more.
func (a *Attacher) Activate(ctx context.Context, key model.AttachmentKey) error {
	return a.switcher.activate(ctx, key)
}

// Retire has a finished attachment stand by: nothing leads to its addresses here any more. Another one has them, or is
// about to.
func (a *Attacher) Retire(ctx context.Context, key model.AttachmentKey) error {
	return a.switcher.retire(ctx, key)
}

// Hold waits for a container's turn, as ADD and DEL do, on behalf of others.
func (a *Attacher) Hold(ctx context.Context, container string) (release func(), err error) {
	return a.locks.main.Container(ctx, container)
}

// Brought are the addresses that pods have brought along, or that lead to them, of the pods that are attached and do
// not stand by.
func (a *Attacher) Brought() ([]Brought, error) { return a.unmanaged.list() }

// Marked are the pods that have asked for a code point, by their links.
func (a *Attacher) Marked() []Marked { return a.dscp.list() }
