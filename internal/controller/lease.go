// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// The Lease of the leader.
const (
	leaseNamespace = "kube-system"
	leaseName      = "weft-controller"
	// microTime is the format of a Lease's times in Kubernetes.
	microTime = "2006-01-02T15:04:05.000000Z07:00"
)

func leases() store.Kind {
	return store.Kind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Resource: "leases", Namespaced: true}
}

// lease is this agent's view of the Lease. The holder is alive if the Lease changes within a time on this agent's
// clock: clocks of two nodes are never compared.
type lease struct {
	objects store.Objects
	me      string

	seen  string // the last observed version
	since time.Time
}

type leaseSpec struct {
	Holder      string `json:"holderIdentity"`
	Transitions int    `json:"leaseTransitions"`
	Seconds     int    `json:"leaseDurationSeconds"`
}

// holderLimit is the longest duration of a holder's Lease that others respect.
const holderLimit = 5 * time.Minute

// duration returns how long the holder may be silent: what it has written, or what this candidate would write if that is more.
// A holder of another version renews the Lease at another interval.
func (s leaseSpec) duration(own time.Duration) time.Duration {
	return max(own, min(time.Duration(s.Seconds)*time.Second, holderLimit))
}

// acquire renews the Lease, or takes it if it has no holder or was not renewed for long, and reports whether this agent
// holds it.
func (l *lease) acquire(ctx context.Context, now time.Time, long time.Duration) (bool, error) {
	key := leases().Key(leaseNamespace, leaseName)
	o, err := l.objects.Get(ctx, leases(), key)
	if errors.Is(err, store.ErrNotFound) {
		return l.create(ctx, key, now, long)
	}
	if err != nil {
		return false, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	var is struct{ Spec leaseSpec }
	if err := json.Unmarshal(o.Raw, &is); err != nil {
		is.Spec = leaseSpec{} // invalid: no holder has written that
	}
	if o.Version != l.seen {
		l.seen, l.since = o.Version, now
	}
	if is.Spec.Holder != l.me && is.Spec.Holder != "" && now.Sub(l.since) < is.Spec.duration(long) {
		return false, nil
	}
	took := is.Spec.Holder != l.me
	next, err := o.Edited(func(fields map[string]any) error {
		spec, _ := fields["spec"].(map[string]any)
		if spec == nil {
			spec = map[string]any{}
		}
		spec["holderIdentity"], spec["renewTime"], spec["leaseDurationSeconds"] = l.me, now.UTC().Format(microTime),
			int(max(long, time.Second)/time.Second)
		if took {
			spec["acquireTime"], spec["leaseTransitions"] = spec["renewTime"], is.Spec.Transitions+1
		}
		fields["spec"] = spec
		return nil
	})
	if err != nil {
		return false, err
	}
	o, err = l.objects.CompareAndSwap(ctx, leases(), o.Version, next)
	return l.written(o, now, err)
}

func (l *lease) create(ctx context.Context, key store.Key, now time.Time, long time.Duration) (bool, error) {
	text := now.UTC().Format(microTime)
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name},
		"spec": map[string]any{
			"holderIdentity": l.me, "acquireTime": text, "renewTime": text,
			"leaseDurationSeconds": int(max(long, time.Second) / time.Second), "leaseTransitions": 0,
		},
	})
	if err != nil {
		return false, err
	}
	o, err := store.NewObject(raw)
	if err != nil {
		return false, err
	}
	o, err = l.objects.Create(ctx, leases(), o)
	return l.written(o, now, err)
}

// written returns the outcome of a write: another candidate was first, or this one holds the Lease.
func (l *lease) written(o store.Object, now time.Time, err error) (bool, error) {
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists), errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	l.seen, l.since = o.Version, now
	return true, nil
}
