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

// The Lease that says who leads.
const (
	leaseNamespace = "kube-system"
	leaseName      = "weft-controller"
	// microTime is how Kubernetes writes the times of a Lease.
	microTime = "2006-01-02T15:04:05.000000Z07:00"
)

func leases() store.Kind {
	return store.Kind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Resource: "leases", Namespaced: true}
}

// lease is this agent's view of the Lease. Whether its holder lives is told by its changes, as this agent's own clock
// has it: clocks of two nodes are never compared.
type lease struct {
	objects store.Objects
	me      string

	seen  string // the version that was seen last
	since time.Time
}

type leaseSpec struct {
	Holder      string `json:"holderIdentity"`
	Transitions int    `json:"leaseTransitions"`
}

// hold renews the Lease, or takes it when it is nobody's or was not renewed for so long, and tells whether it is this
// agent's.
func (l *lease) hold(ctx context.Context, now time.Time, long time.Duration) (bool, error) {
	key := leases().Key(leaseNamespace, leaseName)
	o, err := l.objects.Get(ctx, leases(), key)
	if errors.Is(err, store.ErrNotFound) {
		return l.make(ctx, key, now, long)
	}
	if err != nil {
		return false, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	var is struct{ Spec leaseSpec }
	if err := json.Unmarshal(o.Raw, &is); err != nil {
		is.Spec = leaseSpec{} // nobody can have written that who holds it
	}
	if o.Version != l.seen {
		l.seen, l.since = o.Version, now
	}
	if is.Spec.Holder != l.me && is.Spec.Holder != "" && now.Sub(l.since) < long {
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
	return l.held(o, now, err)
}

func (l *lease) make(ctx context.Context, key store.Key, now time.Time, long time.Duration) (bool, error) {
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
	return l.held(o, now, err)
}

// held is the outcome of a write: somebody else was first, or it is held now.
func (l *lease) held(o store.Object, now time.Time, err error) (bool, error) {
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists), errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	l.seen, l.since = o.Version, now
	return true, nil
}
