// SPDX-License-Identifier: Apache-2.0

// Package policystatus reports on the API server which parts of a network policy weft does not support: in a condition
// of a ClusterNetworkPolicy, and in an event for policies whose kind has no conditions.
//
// All nodes find the same unsupported parts. They report in the order of their rank, so that the first node writes and
// the others find it written.
package policystatus

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// reportPause batches reports; each node waits reportTurn longer than the node of the next lower rank, and finds the
	// report written.
	reportPause, reportTurn = 200 * time.Millisecond, 10 * time.Second
	// reporters limits how many nodes report at all.
	reporters  = 3
	understood = model.ConditionUnderstood
	// maxMessage limits a condition's message, maxEvent that of an event, in bytes: the server refuses longer ones.
	maxMessage, maxEvent = 4096, 1024
)

// Events creates events on the API server.
type Events interface {
	// EventOn creates an event on an object as it was read.
	EventOn(ctx context.Context, kind store.Kind, o store.Object, e model.Event) error
}

// Config configures a Reporter.
type Config struct {
	Objects store.Objects
	Events  Events
	// Rank returns how many nodes come before this one.
	Rank  func() int
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Reporter reports the unsupported parts of policies.
type Reporter struct {
	cfg     Config
	changed notify.Chan

	mu      sync.Mutex
	pending map[model.PolicyKey]string // what is to be reported
	invalid map[store.Key]invalid
}

// invalid is an object that cannot be understood, and why.
type invalid struct {
	object store.Object
	why    string
}

// New returns a Reporter.
func New(cfg Config) *Reporter {
	return &Reporter{
		cfg: cfg, changed: notify.New(), pending: map[model.PolicyKey]string{}, invalid: map[store.Key]invalid{},
	}
}

// Unsupported records the unsupported parts of a policy for Run to report; none means that it is supported.
func (r *Reporter) Unsupported(key model.PolicyKey, parts []string) {
	r.mu.Lock()
	r.pending[key] = strings.Join(parts, "; ")
	r.mu.Unlock()
	r.changed.Notify()
}

// Invalid records an object that policies need, such as a tier or a host endpoint, and that cannot be understood, for Run to
// report.
func (r *Reporter) Invalid(o store.Object, why error) {
	r.mu.Lock()
	r.invalid[o.Key] = invalid{o, why.Error()}
	r.mu.Unlock()
	r.changed.Notify()
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
		rank := r.cfg.Rank()
		select {
		case <-ctx.Done():
			return nil
		case <-r.cfg.After(reportPause + time.Duration(rank)*reportTurn):
		}
		r.mu.Lock()
		all, objects := r.pending, r.invalid
		r.pending, r.invalid = map[model.PolicyKey]string{}, map[store.Key]invalid{}
		r.mu.Unlock()
		for key, i := range objects {
			if err := r.reportInvalid(ctx, i, rank == 0); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("agent could not report an object that policies need", "object", key.String(), "err", err)
			}
		}
		for key, unsupported := range all {
			if rank >= reporters {
				continue
			}
			if err := r.report(ctx, key, unsupported, rank == 0); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("agent could not report the unsupported parts of a policy", "policy", key.String(), "err", err)
			}
		}
	}
}

func (r *Reporter) report(ctx context.Context, key model.PolicyKey, unsupported string, first bool) error {
	if key.Kind == model.KindClusterNetworkPolicy {
		return r.condition(ctx, key, unsupported)
	}
	if unsupported == "" || !first {
		return nil
	}
	// kubectl describe finds events by the UID.
	kind, o, err := r.find(ctx, key)
	if err != nil {
		return ignoreDeleted(err)
	}
	return r.cfg.Events.EventOn(ctx, kind, o, model.Event{
		Warning: true, Reason: "UnsupportedPolicy", Message: shortened(unsupported, maxEvent),
	})
}

// reportInvalid writes the event of an object of Calico's.
func (r *Reporter) reportInvalid(ctx context.Context, i invalid, first bool) error {
	all := slices.Concat(calico.PolicyKinds()...)
	at := slices.IndexFunc(all, i.object.Key.Of)
	if at < 0 || !first {
		return nil
	}
	return r.cfg.Events.EventOn(ctx, all[at], i.object, model.Event{
		Warning: true, Reason: "InvalidPolicyObject", Message: shortened(i.why, maxEvent),
	})
}

// find reads the object of a policy whose kind has no conditions.
func (r *Reporter) find(ctx context.Context, key model.PolicyKey) (store.Kind, store.Object, error) {
	if key.Kind.Calico() {
		return calico.Find(ctx, r.cfg.Objects, key)
	}
	kind := store.NetworkPolicies()
	if key.Kind == model.KindMultiNetworkPolicy {
		kind = store.MultiNetworkPolicies()
	}
	o, err := r.cfg.Objects.Get(ctx, kind, kind.Key(key.Namespace, key.Name))
	return kind, o, err
}

// ignoreDeleted returns the error, unless the policy was deleted meanwhile.
func ignoreDeleted(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// shortened limits a text, in bytes.
func shortened(text string, most int) string {
	const more = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// maxTries bounds the attempts to write a condition while others write the object's status.
const maxTries = 5

// condition writes the condition of a policy if it differs.
func (r *Reporter) condition(ctx context.Context, key model.PolicyKey, unsupported string) error {
	kind := store.ClusterNetworkPolicies()
	for try := 1; ; try++ {
		o, err := r.cfg.Objects.Get(ctx, kind, kind.Key("", key.Name))
		if err != nil {
			return ignoreDeleted(err)
		}
		next, changed, err := withCondition(o, unsupported, r.cfg.Now())
		if err != nil || !changed {
			return err
		}
		_, err = r.cfg.Objects.CompareAndSwapStatus(ctx, kind, o.Version, next)
		if try == maxTries || !errors.Is(err, store.ErrConflict) {
			return ignoreDeleted(err)
		}
	}
}

// withCondition returns the object with the condition, and whether that differs. A supported policy gets it only if it
// had the condition before.
func withCondition(o store.Object, unsupported string, now time.Time) (store.Object, bool, error) {
	want := model.Condition{
		Type: understood, Reason: "UnsupportedPolicy", Message: shortened(unsupported, maxMessage),
	}
	if unsupported == "" {
		want = model.Condition{
			Type: understood, True: true, Reason: "Understood", Message: "the policy is enforced completely",
		}
	}
	have, is := o.Conditions()[understood]
	if unsupported == "" && !is || is && have == want && o.Observed(understood) {
		return o, false, nil
	}
	next, err := o.Edited(store.WithCondition(want, now))
	return next, err == nil, err
}
