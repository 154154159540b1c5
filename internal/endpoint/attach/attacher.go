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
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Config configures an Attacher.
type Config struct {
	Records RecordStore
	// Locks serialize calls; nil locks within this process only.
	Locks Locks
	// Host is the node's network namespace, the one of this process.
	Host       *kernel.Conn
	Planners   map[string]plugin.Planner
	Allocators map[string]ipam.Allocator
	// Exec executes the plugins that are not built in.
	Exec *foreign.Runner
	// Reaper deletes dead links after a DEL has returned; it must be running. With a Reaper the Attacher is an agent's: a
	// repeated ADD returns the same result, and shared objects are removed with their last owner. Nil means a standalone
	// plugin: everything is synchronous, as in the reference plugins.
	Reaper *kernel.Reaper
	// Policy, which may be nil, is notified of each interface before it is created and after it is gone.
	Policy PolicyEnforcer
	// VMs, which may be nil, is the registry of the virtual machines in pods.
	VMs VMRegistry
	Log *slog.Logger
	Now func() time.Time
	// Boot is the node's boot id.
	Boot string
	// Failpoint, which may be nil, is called before and after each step. A test makes a step fail by returning an error.
	Failpoint failpoint.Hook
	// Repaired, which may be nil, is called with the objects that were repaired, as differences name them.
	Repaired func(things []string)
	// Event, which may be nil, records an event of the pod when its network drifted twice within ten minutes. It must not
	// block.
	Event func(pod model.PodRef, e model.Event)
	// Gates, which may be nil, waits until the readiness URLs answer.
	Gates func(ctx context.Context, urls []string) error
	// Node, which may be nil, returns what the cluster configures for this node.
	Node func() Node
	// VMChanged, which may be nil, is called when an attachment of a virtual machine is done or gone, or changes between
	// active and standby. It must not block.
	VMChanged func(key model.AttachmentKey)
	// RemoteConflict, which may be nil, returns an error if an unmanaged address of a pod is in use on another node.
	RemoteConflict func(ctx context.Context, addr netip.Addr, pod model.PodRef) error
	// Linger is how long an agent keeps shared objects without owners; 0 means the default.
	Linger time.Duration
}

// Attacher attaches containers to networks. It is safe for concurrent use. It delegates to its parts, each of which
// names its dependencies.
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
	handover  *handover
}

// New makes an Attacher.
func New(cfg Config) *Attacher {
	if cfg.Locks == nil {
		cfg.Locks = newProcessLocks()
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
	log, host, boot, now, fail := cfg.Log.With("component", "attach"), cfg.Host, cfg.Boot, cfg.Now, cfg.Failpoint
	agent := cfg.Reaper != nil

	// Shared by all parts: records, locks, configurations.
	records := &notifyingStore{store: cfg.Records, fail: fail}
	locks := &lockSet{main: cfg.Locks, ipamOnly: newProcessLocks()}
	owners := &owners{of: map[string]map[model.AttachmentKey]int64{}}
	cooling := &cooling{of: map[string]int{}}
	namespaces := &namespaces{host: host, boot: boot, hostID: sync.OnceValues(hostID)}
	delegates := &delegator{exec: cfg.Exec}
	catalog := &catalog{planners: cfg.Planners, allocators: cfg.Allocators, delegates: delegates}
	resolver := &resolver{catalog: catalog, node: cfg.Node, records: records}
	vms := &podVMs{registry: cfg.VMs, boot: boot, log: log}
	hook := &policyHook{enforcer: cfg.Policy, vms: vms, notify: cfg.VMChanged, fail: fail}
	unmanaged := &unmanaged{catalog: catalog, records: records, boot: boot, remoteConflict: cfg.RemoteConflict}
	dscp := &dscpMarks{catalog: catalog}

	// The parts that act on attachments.
	rollback := &rollback{
		host: host, boot: boot, locks: locks, records: records, catalog: catalog, delegates: delegates,
		vms: vms, hook: hook,
		agent: agent, reaper: cfg.Reaper, log: log, fail: fail,
	}
	queue := &releaseQueue{
		owners: owners, cooling: cooling, locks: locks, records: records, rollback: rollback, reaper: cfg.Reaper,
		linger: cfg.Linger,
		now:    now, log: log, wake: notify.New(),
	}
	repairer := &repairer{
		host: host, boot: boot, agent: agent, namespaces: namespaces, locks: locks, records: records, vms: vms,
		repaired: cfg.Repaired, event: cfg.Event, log: log, now: now, fail: fail, index: newObjectIndex(),
		queue: newRepairQueue(),
	}
	switcher := &switcher{host: host, boot: boot, locks: locks, records: records, catalog: catalog, hook: hook, fail: fail}
	records.written = []func(Record){owners.written, repairer.written}
	records.forgotten = []func(model.AttachmentKey){owners.forgotten, unmanaged.drop, dscp.drop, repairer.forgotten}
	return &Attacher{
		locks: locks, unmanaged: unmanaged, dscp: dscp, queue: queue, repairer: repairer,
		adder: &adder{
			boot: boot, agent: agent, namespaces: namespaces, locks: locks, records: records, catalog: catalog,
			resolver:  resolver,
			delegates: delegates, hook: hook, unmanaged: unmanaged, dscp: dscp, rollback: rollback, cooling: cooling,
			reaper: cfg.Reaper, gates: cfg.Gates, log: log, now: now, fail: fail,
			prior: &priorAdd{
				boot: boot, agent: agent, namespaces: namespaces, records: records, vms: vms, rollback: rollback, log: log,
			},
		},
		deleter: &deleter{
			agent: agent, boot: boot, namespaces: namespaces, locks: locks, records: records, catalog: catalog,
			vms:       vms,
			unmanaged: unmanaged, dscp: dscp, rollback: rollback, cooling: cooling, queue: queue,
			reaper: cfg.Reaper, log: log, fail: fail,
			deriver: &deriver{
				host: host, namespaces: namespaces, catalog: catalog, resolver: resolver, delegates: delegates,
				rollback: rollback, log: log,
			},
		},
		checker: &checker{
			host: host, boot: boot, agent: agent, namespaces: namespaces, locks: locks, records: records, catalog: catalog,
			resolver: resolver, delegates: delegates, vms: vms,
		},
		collector: &collector{
			host: host, boot: boot, namespaces: namespaces, locks: locks, records: records, catalog: catalog, resolver: resolver,
			delegates: delegates, rollback: rollback,
		},
		recoverer: &recoverer{
			boot: boot, namespaces: namespaces, locks: locks, records: records, owners: owners, repairer: repairer,
			unmanaged: unmanaged, dscp: dscp, vms: vms, rollback: rollback,
		},
		switcher: switcher,
		handover: &handover{
			host: host, namespaces: namespaces, records: records, finished: switcher.withFinished, hook: hook,
			planners: cfg.Planners, fail: fail,
		},
	}
}

// Add attaches a container to a network. A failed Add is rolled back.
func (a *Attacher) Add(ctx context.Context, job Job) (model.Result, error) {
	results, _, err := a.AddAll(ctx, []Job{job})
	if err != nil {
		return model.Result{}, err
	}
	return results[0], nil
}

// AddAll attaches one container to one or several networks, all or none. Consecutive built-in networks that share no
// object of the node are planned one by one and applied in one pass. failed is the index of the job that the error is
// about.
func (a *Attacher) AddAll(ctx context.Context, jobs []Job) (results []model.Result, failed int, err error) {
	return a.adder.addAll(ctx, jobs)
}

// Del undoes an attachment. It needs the record only, neither the namespace nor the configuration of the call. Without
// a record it removes what it can derive from the configuration. An unknown attachment is no error.
func (a *Attacher) Del(ctx context.Context, job Job) error { return a.DelAll(ctx, []Job{job})[0] }

// DelAll undoes one or several attachments of one container; it returns one error per job.
func (a *Attacher) DelAll(ctx context.Context, jobs []Job) []error {
	return a.deleter.delAll(ctx, jobs)
}

// Drain waits until all released attachments are cleaned up, without lingering. An agent calls it before it stops.
func (a *Attacher) Drain(ctx context.Context) error { return a.queue.drain(ctx) }

// Check reports whether an attachment is still as its ADD left it. The error lists what differs.
func (a *Attacher) Check(ctx context.Context, job Job) error { return a.checker.check(ctx, job) }

// CheckAll checks every finished attachment, as its runtime would, until ctx ends. It changes nothing.
func (a *Attacher) CheckAll(ctx context.Context) (model.CheckReport, error) {
	return a.checker.checkAll(ctx)
}

// Status reports whether an ADD to the network could succeed. It changes nothing.
func (a *Attacher) Status(ctx context.Context, job Job) error { return a.checker.status(ctx, job) }

// GC undoes every attachment of the network that is not valid, and what killed calls have left.
func (a *Attacher) GC(ctx context.Context, job Job, valid []model.AttachmentKey) error {
	return a.collector.gc(ctx, job, valid)
}

// Recover reconciles records and kernel when an agent starts, before it accepts calls: unfinished attachments are
// undone; records of an earlier boot are dropped and their addresses released. The reaper must be running.
func (a *Attacher) Recover(ctx context.Context) (Report, error) { return a.recoverer.run(ctx) }

// UndoUnfinished undoes the attachment of a killed call, unless it is finished or gone by now. The caller holds the
// container's lock.
func (a *Attacher) UndoUnfinished(ctx context.Context, rec Record) error {
	return a.recoverer.undoUnfinished(ctx, rec)
}

// Reconcile repairs the drift of finished attachments until ctx ends.
func (a *Attacher) Reconcile(ctx context.Context, c ReconcileConfig) error {
	return a.repairer.reconcile(ctx, c)
}

// Repair repairs the drift of one finished attachment, as far as the repair policy (decide) allows, and reports whether
// there was any. Of an attachment whose pod is gone only the rules on the node are compared.
func (a *Attacher) Repair(ctx context.Context, key model.AttachmentKey) (drifted bool, err error) {
	return a.repairer.repair(ctx, key, repairWait, wholeAttachment, false)
}

// RepairRules restores the attachments' rules on the node that other programs have removed. With slowOnly it checks
// only attachments with rules of iptables and firewalld, which report no changes. It is idempotent.
func (a *Attacher) RepairRules(ctx context.Context, slowOnly bool) error {
	return a.repairer.repairAllRules(ctx, slowOnly)
}

// Activate makes a finished standby attachment the active one, which has the addresses. It is idempotent.
func (a *Attacher) Activate(ctx context.Context, key model.AttachmentKey) error {
	return a.switcher.activate(ctx, key)
}

// Retire makes a finished attachment the standby one: this node no longer routes to its addresses, because another
// attachment has them or is about to.
func (a *Attacher) Retire(ctx context.Context, key model.AttachmentKey) error {
	return a.switcher.retire(ctx, key)
}

// HandOver hands a finished attachment over to a container engine, which moves the interface into its container itself.
// ns is the namespace of the ADD, nil if it is the record's path. Nothing passes until SetLabels.
func (a *Attacher) HandOver(
	ctx context.Context, key model.AttachmentKey, how HandOver, ns *netns.NS,
) (HandedOver, error) {
	return a.handover.handOver(ctx, key, how, ns)
}

// SetLabels sets the labels of the container of an attachment that was handed over, by which policies select it. It
// returns once these are enforced and packets pass.
func (a *Attacher) SetLabels(ctx context.Context, key model.AttachmentKey, labels map[string]string) error {
	return a.handover.setLabels(ctx, key, labels)
}

// Publish maps ports of the node to the container of an attachment that was handed over, in place of those that are
// mapped; without ports it only revokes these. It returns the ports that were chosen.
func (a *Attacher) Publish(
	ctx context.Context, key model.AttachmentKey, ports []model.PublishedPort,
) ([]model.PublishedPort, error) {
	return a.handover.publish(ctx, key, ports)
}

// LockContainer locks a container against ADD and DEL, for other components.
func (a *Attacher) LockContainer(ctx context.Context, container string) (release func(), err error) {
	return a.locks.main.Container(ctx, container)
}

// UnmanagedAddrs returns the unmanaged and floating addresses of the active attachments.
func (a *Attacher) UnmanagedAddrs() ([]UnmanagedAddr, error) { return a.unmanaged.list() }

// DSCPMarks returns the pods that request a DSCP, ordered by their links.
func (a *Attacher) DSCPMarks() []DSCPMark { return a.dscp.list() }
