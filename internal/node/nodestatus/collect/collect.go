// SPDX-License-Identifier: Apache-2.0

// Package collect asks the components of an agent for the node's state, within the seconds that weft status waits. The
// checks are the components' own, those of weft doctor, weft mesh ping and weft ipam check; what is not finished in time
// is a finding of level skip.
package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/kernel/lookup"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/fastpath"
	"github.com/weft-net/weft/internal/node/migration"
	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/node/unrecorded"
)

// Limits of one collection.
const (
	// checkTime limits the comparison of attachments and VMs with the kernel, probeTime the other checks.
	checkTime = 2 * time.Second
	probeTime = 3 * time.Second
	// rateTime is the least time between the two readings of a rate.
	rateTime = time.Second
	// pendingTime is how long an ADD may take before it is a finding.
	pendingTime = time.Minute
	// maxProbed is how many peers are probed. A node is probed by as many others, and answers all of them within a second:
	// the kernel limits the rate of its ICMP errors.
	maxProbed = 32
)

// Policies is what enforces network policies.
type Policies interface {
	Summary(ctx context.Context) (policy.Summary, error)
	Stats() policy.Stats
}

// Collector has the components of an agent. Those that are nil do not exist on the node.
type Collector struct {
	Node, Version string
	// Ready returns why new pods are not attached.
	Ready func() error
	// Records lists the ledger.
	Records func() ([]attach.Record, error)
	// Lost lists the interfaces of running pods without a record.
	Lost func() ([]unrecorded.Interface, error)
	// Check and CheckVMs compare attachments and VMs with the kernel, until ctx ends.
	Check    func(ctx context.Context) model.CheckReport
	CheckVMs func(ctx context.Context) model.VMReport
	// Moving lists the attachments of VMs that may migrate.
	Moving func() []migration.Attachment
	// Mesh returns the state of the mesh.
	Mesh     func() (reconcile.Status, error)
	Policies Policies
	// Pools counts the node's blocks and addresses by pool.
	Pools func() map[string]blockreport.Counts
	// Addresses compares allocations, ledger and kernel, as weft ipam check --agent does.
	Addresses func() ([]audit.Finding, error)
	// Doctor makes the checks of weft doctor that are not among these, until ctx ends.
	Doctor func(ctx context.Context) []nodestatus.Finding
	// FastPath returns the state of the path of established flows.
	FastPath func() fastpath.Status
	// Repairs counts repairs since the agent's start.
	Repairs func() uint64
	// Now returns the time, and After a channel that receives after some time.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// collection is one answer in the making.
type collection struct {
	from Collector
	// mu guards state: checks run in parallel.
	mu    sync.Mutex
	state nodestatus.Status
}

// found adds a finding.
func (s *collection) found(level nodestatus.Level, check, hint, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Findings = append(s.state.Findings, nodestatus.Finding{
		Level: level, Check: check, Hint: hint, Message: fmt.Sprintf(format, args...),
	})
}

// set changes the state.
func (s *collection) set(change func(*nodestatus.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// Status returns the node's state. What fails, or does not finish in time, is among its findings.
func (c Collector) Status(ctx context.Context) nodestatus.Status {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	s := &collection{from: c, state: nodestatus.Status{
		Node: c.Node, Version: c.Version, Findings: []nodestatus.Finding{}, Repairs: c.Repairs(),
	}}
	if err := c.Ready(); err != nil {
		s.found(nodestatus.Bad, "agent", "", "new pods are not attached: %v", err)
	}
	var parts sync.WaitGroup
	for name, part := range map[string]func(context.Context){
		"attachments": s.ofAttachments, "vms": s.ofVMs, "mesh": s.ofMesh, "policy": s.ofPolicies, "pools": s.ofPools,
		"ipam check": s.ofAddresses, "conntrack": s.ofConnections, "doctor": s.ofDoctor, "fast path": s.ofFastPath,
	} {
		parts.Go(func() { s.limited(ctx, name, part) })
	}
	parts.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.state
	out.Findings = slices.Clone(out.Findings) // a part that hangs may add to its own later
	slices.SortStableFunc(out.Findings, func(a, b nodestatus.Finding) int { return cmp.Compare(a.Check, b.Check) })
	return out
}

// limited waits for a part, but not much longer than ctx: a system call may hang.
func (s *collection) limited(ctx context.Context, name string, part func(context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		part(ctx)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-s.from.After(rateTime / 2):
		s.found(nodestatus.Skip, name, "", "not checked: the time ran out")
	}
}

func (s *collection) ofAttachments(ctx context.Context) {
	records, err := s.from.Records()
	if err != nil {
		s.found(nodestatus.Bad, "attachments", "see the agent's log", "records cannot be read: %v", err)
	}
	var all, pending, releasing int
	for _, rec := range records {
		end, pod := rec.Endpoint()
		if !pod {
			continue
		}
		all++
		switch rec.Stage {
		case attach.Pending:
			pending++
			if since := s.from.Now().Sub(rec.Since()); since > pendingTime {
				s.found(nodestatus.Warn, "attachments", "the kubelet's event on the pod names the reason, if its ADD failed",
					"pod %s waits for its network since %s", end.Pod, since.Round(time.Second))
			}
		case attach.Releasing:
			releasing++
		}
	}
	if lost, err := s.from.Lost(); err != nil {
		s.found(nodestatus.Skip, "attachments", "", "interfaces without a record were not looked for: %v", err)
	} else if len(lost) > 0 {
		s.found(nodestatus.Warn, "attachments", "start their pods again when it suits: docs/tasks/replace-a-nodes-disk.md",
			"records of %d interfaces are lost, of container %s first: the pods keep their addresses, and nothing is repaired",
			len(lost), lost[0].Attachment.ContainerID)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	checked := s.from.Check(ctx)
	if checked.Unchecked > 0 {
		s.found(nodestatus.Skip, "attachments", "weft doctor on the node takes longer",
			"%d of %d attachments were not checked: they are in use, or the time ran out", checked.Unchecked,
			checked.Attachments)
	}
	broken := map[string]bool{}
	for _, p := range checked.Problems {
		broken[p.Attachment] = true
		name := cmp.Or(p.Pod, p.Attachment)
		if p.Gone {
			s.found(nodestatus.Warn, "attachments", "the runtime's DEL or a GC deletes it",
				"%s: its network namespace is gone", name)
			continue
		}
		s.found(nodestatus.Bad, "attachments", "weft explain names what it blocks; the agent restores what is missing once",
			"%s: %s", name, strings.TrimSpace(p.Message))
	}
	s.set(func(st *nodestatus.Status) {
		st.Attachments, st.Pending, st.Releasing, st.Unfinished = all, pending, releasing, pending+releasing
		st.Broken = len(broken)
	})
}

func (s *collection) ofVMs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	vms := s.from.CheckVMs(ctx)
	if vms.Unreadable != "" {
		s.found(nodestatus.Bad, "vms", "see the agent's log", "records of VMs cannot be read: %s", vms.Unreadable)
	}
	for _, p := range vms.Problems {
		s.found(nodestatus.Bad, "vms", "see weft doctor on the node", "%s: %s", p.VM, p.Message)
	}
	moving := map[model.VMRef]bool{}
	if s.from.Moving != nil {
		for _, a := range s.from.Moving() {
			if a.State == migration.Awaited {
				moving[a.VM] = true
			}
		}
	}
	s.set(func(st *nodestatus.Status) { st.VMs, st.Migrations = vms.VMs, len(moving) })
}

func (s *collection) ofPolicies(ctx context.Context) {
	if s.from.Policies == nil {
		return
	}
	begin := s.from.Now()
	sum, err := s.from.Policies.Summary(ctx)
	if err != nil {
		s.found(nodestatus.Bad, "policy", "see the agent's log", "network policies: %v", err)
		return
	}
	if !sum.Known {
		s.found(nodestatus.Bad, "policy", "check the API server and the agent's log", "network policies are not known yet")
	}
	incomplete := 0
	for _, p := range sum.Policies {
		if p.Unsupported != "" {
			incomplete++
			s.found(nodestatus.Warn, "policy", "weft policy show", "%s is not enforced in full: %s", p.PolicyKey, p.Unsupported)
		}
	}
	if n := s.from.Policies.Stats().Quarantined; n > 0 {
		s.found(nodestatus.Bad, "policy", "see the agent's log",
			"%d interfaces are down because their policies cannot be written", n)
	}
	denied, rate := deniedOf(sum), uint64(0)
	if len(sum.Policies) > 0 {
		select {
		case <-ctx.Done():
		case <-s.from.After(rateTime):
		}
		later, err := s.from.Policies.Summary(ctx)
		took := s.from.Now().Sub(begin)
		switch more := deniedOf(later); {
		case err != nil:
			s.found(nodestatus.Skip, "policy", "", "denied packets per minute are not known: %v", err)
		case more > denied && took > 0: // fewer: the chains were written again
			rate = uint64(float64(more-denied) * float64(time.Minute) / float64(took))
			denied = more
		}
	}
	s.set(func(st *nodestatus.Status) {
		st.Policies, st.Incomplete, st.Denied, st.DeniedPerMinute = len(sum.Policies), incomplete, denied, rate
	})
}

// deniedOf sums up the denied packets.
func deniedOf(sum policy.Summary) (n uint64) {
	for _, d := range sum.Denied {
		n += d.Packets
	}
	return n
}

func (s *collection) ofPools(context.Context) {
	if s.from.Pools == nil {
		return
	}
	var pools []nodestatus.Pool
	for name, c := range s.from.Pools() {
		pools = append(pools, nodestatus.Pool{Name: name, Blocks: c.Blocks, Free: c.Free, Allocated: c.Held})
	}
	slices.SortFunc(pools, func(a, b nodestatus.Pool) int { return strings.Compare(a.Name, b.Name) })
	s.set(func(st *nodestatus.Status) {
		for _, p := range pools {
			st.Blocks, st.Free, st.Allocated = st.Blocks+p.Blocks, st.Free+p.Free, st.Allocated+p.Allocated
		}
		st.Pools = pools
	})
}

func (s *collection) ofAddresses(context.Context) {
	if s.from.Addresses == nil {
		return
	}
	findings, err := s.from.Addresses()
	if err != nil {
		s.found(nodestatus.Skip, "ipam check", "weft ipam check --agent on the node", "not checked: %v", err)
	}
	for _, f := range findings {
		s.found(nodestatus.Warn, "ipam check",
			"weft ipam check --agent on the node shows it with the cluster's objects", "%s", f.Msg)
	}
}

// ofConnections reads the size of the connection table.
func (s *collection) ofConnections(context.Context) {
	var used, most int
	host, err := lookup.Open(nil)
	if err == nil {
		used, most, err = host.Conntrack()
		err = errors.Join(err, host.Close())
	}
	if err != nil {
		s.found(nodestatus.Skip, "conntrack", "", "the connection table cannot be read: %v", err)
	}
	s.set(func(st *nodestatus.Status) { st.Connections, st.MaxConnections = used, most })
}

func (s *collection) ofFastPath(context.Context) {
	if s.from.FastPath == nil {
		return
	}
	is := s.from.FastPath()
	if is.Liberal && is.Mode == fastpath.Off {
		s.found(nodestatus.Warn, "fast path", "see the agent's log", "nf_conntrack_tcp_be_liberal could not be restored")
	}
	if is.Mode == fastpath.Off {
		return
	}
	out := nodestatus.FastPath{Mode: is.Mode, Way: is.Way, Lacks: is.Lacks, Links: len(is.Links), Packets: is.Packets}
	if is.Liberal {
		out.Liberal = 1
	}
	if is.Used {
		out.Nodes = 1
	} else {
		s.found(nodestatus.Warn, "fast path", "packets take the ordinary path; docs/concepts/fast-path.md",
			"network.fastPath %s is not used: %s", is.Mode, is.Reason)
	}
	s.set(func(st *nodestatus.Status) { st.FastPath = &out })
}

func (s *collection) ofDoctor(ctx context.Context) {
	if s.from.Doctor == nil {
		return
	}
	for _, f := range s.from.Doctor(ctx) {
		s.found(f.Level, f.Check, f.Hint, "%s", f.Message)
	}
}
