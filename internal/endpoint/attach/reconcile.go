// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"math"
	"time"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// rulesQuiet gathers deleted rules: a firewall that reloads deletes one table after another.
	rulesQuiet = 50 * time.Millisecond
	// slowRulesPeriod is how often rules of legacy iptables and firewalld are looked at, which report nothing.
	slowRulesPeriod = 5 * time.Minute
	// resolveLate is how long a new pod's namespace may wait for its id, resolveSoon is how long where changes wait for
	// it: there are some with each ADD and DEL, and to ask takes the node's socket from the next one.
	resolveLate, resolveSoon = time.Second, 50 * time.Millisecond
)

// Reconciling is what the reconciler of attachments needs beside the Attacher's own configuration.
type Reconciling struct {
	After func(time.Duration) <-chan time.Time
	// Quiet are tables of nft that another component repairs, and the sockets by which it writes them.
	Quiet []watch.Own
}

// reconciler keeps attachments as they were made.
type reconciler struct {
	*repairer
	Reconciling
	rules <-chan struct{} // rules on the node were deleted; nil where nothing reports it
	// When rules, rules that nothing reports, the next attachment of the pass, and new namespaces are looked at.
	rulesDue, slowDue, passDue, resolveDue time.Time
}

// reconcile puts back what is taken away of finished attachments, until ctx ends: all of them at the start, then what
// the kernel reports, and one after the other what it does not report. Namespaces of pods are watched from the node's,
// which keeps none alive.
func (p *repairer) reconcile(ctx context.Context, c Reconciling) error {
	r := &reconciler{repairer: p, Reconciling: c}
	ctx, cancel := context.WithCancel(ctx)
	ended := r.listen(ctx)
	defer func() {
		cancel()
		for _, done := range ended {
			<-done
		}
	}()
	now := p.now()
	r.rulesDue, r.slowDue, r.passDue, r.resolveDue = now, now.Add(slowRulesPeriod), now.Add(repairPeriod/10), now
	p.queue.add(now, p.index.all()...)
	for ctx.Err() == nil {
		if wait := r.step(ctx); wait > 0 && ctx.Err() == nil {
			r.wait(ctx, wait)
		}
	}
	return nil
}

// listen begins to hear of changes. What cannot be heard of is found by the pass.
func (r *reconciler) listen(ctx context.Context) (ended []<-chan struct{}) {
	port, err := r.host.LinkPort()
	if err == nil {
		var done <-chan struct{}
		if done, err = watch.Changes(ctx, nil, watch.Scope{Port: port}, r.onNode); err == nil {
			ended = append(ended, done)
		}
	}
	if err != nil {
		r.log.Warn("drift on the node is found by the periodic pass only", "err", err)
	}
	done, err := watch.Changes(ctx, nil, watch.Scope{Others: true}, r.inPod)
	if err != nil {
		r.log.Warn("drift in pods is found by the periodic pass only", "err", err)
	} else {
		ended = append(ended, done)
	}
	own, err := r.host.Port()
	if err == nil {
		r.rules, err = watch.RulesGone(ctx, nil, own, r.Quiet...)
	}
	if err != nil {
		r.log.Warn("deleted rules are found by the periodic pass only", "err", err)
	}
	return ended
}

// onNode takes a change in the node's namespace.
func (r *reconciler) onNode(c watch.Change) { r.queue.add(r.now(), r.index.onNode(c)...) }

// inPod takes a change in another namespace.
func (r *reconciler) inPod(c watch.Change) {
	now := r.now()
	if c.Kind == watch.Lost && !r.queue.mayLose(now) {
		return
	}
	keys, unknown := r.index.inPod(c, r.machines.has)
	r.queue.add(now, keys...)
	if unknown {
		r.queue.wake.Notify()
	}
}

// step does one thing that is due, or gives the time until something is.
func (r *reconciler) step(ctx context.Context) time.Duration {
	now := r.now()
	r.resolve(ctx, now)
	if !r.rulesDue.After(now) && !r.rulesDue.IsZero() {
		r.repairRules(ctx, false)
		return 0
	}
	if !r.slowDue.After(now) {
		r.repairRules(ctx, true)
		return 0
	}
	if !r.passDue.After(now) {
		key, is, wait := r.queue.next(r.index.all)
		if r.passDue = now.Add(max(wait, repairQuiet)); is {
			r.lookAt(ctx, key, wholeAttachment)
			return 0
		}
	}
	key, is, wait := r.queue.take(now)
	if is {
		r.lookAt(ctx, key, withoutRules)
		return 0
	}
	for _, due := range []time.Time{r.rulesDue, r.slowDue, r.passDue, r.resolveDue} {
		if !due.IsZero() {
			wait = min(wait, due.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// lookAt repairs one attachment and notes when it may be looked at again.
func (r *reconciler) lookAt(ctx context.Context, key model.AttachmentKey, how extent) {
	drifted, err := r.repair(ctx, key, repairGlance, how, false)
	if r.queue.looked(key, drifted, r.index.has(key), err, r.now()) && ctx.Err() == nil {
		r.log.Error("attachment cannot be repaired; it is tried again", "attachment", key.String(), "err", err)
	}
}

// repairRules looks after the rules of all attachments.
func (r *reconciler) repairRules(ctx context.Context, slowOnly bool) {
	err := r.repairAllRules(ctx, slowOnly)
	if err != nil && ctx.Err() == nil {
		r.log.Error("rules of attachments cannot be repaired; it is tried again", "err", err)
	}
	now := r.now()
	switch {
	case slowOnly:
		r.slowDue = now.Add(slowRulesPeriod)
	case err != nil:
		r.rulesDue = now.Add(repairAgain)
	default:
		r.rulesDue = time.Time{}
	}
}

// wait waits for a change, at most a while.
func (r *reconciler) wait(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-r.queue.wake:
	case _, open := <-r.rules:
		if !open {
			r.rules = nil
			return
		}
		if due := r.now().Add(rulesQuiet); r.rulesDue.IsZero() || due.Before(r.rulesDue) {
			r.rulesDue = due
		}
	case <-r.After(min(wait, math.MaxInt64)):
	}
}

// resolve asks for the ids of namespaces, of several at once: soon where changes wait for it, a little later where a
// pod is only new.
func (r *reconciler) resolve(ctx context.Context, now time.Time) {
	fresh, waiting := r.index.unresolved()
	if !fresh && !waiting {
		r.resolveDue = time.Time{}
		return
	}
	due := now.Add(resolveLate)
	if waiting {
		due = now.Add(resolveSoon)
	}
	if r.resolveDue.IsZero() || due.Before(r.resolveDue) {
		r.resolveDue = due
	}
	if r.resolveDue.After(now) {
		return
	}
	r.resolveDue = time.Time{}
	ids, unheard := map[uint64]int{}, []uint64{}
	for inode, path := range r.index.nameless() {
		ns, err := netns.Open(path)
		if err != nil {
			continue // the pod goes
		}
		if id, err := ns.ID(); err == nil && id == inode {
			nsid, assigned, err := r.host.NamespaceID(ctx, ns)
			if err == nil {
				ids[inode] = nsid
			}
			if assigned {
				unheard = append(unheard, inode)
			}
		}
		_ = ns.Close()
	}
	r.queue.add(now, r.index.resolve(ids, unheard)...)
}
