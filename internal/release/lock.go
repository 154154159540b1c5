// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weft-net/weft/internal/model"
)

// The lock is a Lease: a process that is killed holds it for lockTime at most.
const (
	lockName  = "weft-cluster"
	lockTime  = 30 * time.Second
	renewTime = 10 * time.Second
)

// locked executes f while no other process installs, upgrades or removes weft in the cluster.
func (c *Cluster) locked(ctx context.Context, f func(context.Context) error) (err error) {
	host, _ := os.Hostname()
	holder := fmt.Sprintf("process %d on %s", os.Getpid(), host)
	if err := c.takeLock(ctx, holder); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(renewTime):
			}
			if err := c.takeLock(ctx, holder); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		}
	}()
	defer func() {
		if cause := context.Cause(ctx); cause != nil && err != nil {
			err = errors.Join(cause, err)
		}
		cancel(nil)
		<-done
		err = errors.Join(err, c.releaseLock(context.WithoutCancel(ctx), holder))
	}()
	return f(ctx)
}

// releaseLock deletes the lock, unless another process has taken it, because this one did not renew it in time.
func (c *Cluster) releaseLock(ctx context.Context, holder string) error {
	leases := c.client.CoordinationV1().Leases(c.namespace)
	l, err := leases.Get(ctx, lockName, metav1.GetOptions{})
	if err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == holder {
		err = leases.Delete(ctx, lockName, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion},
		})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// takeLock takes or renews the lock.
func (c *Cluster) takeLock(ctx context.Context, holder string) error {
	leases := c.client.CoordinationV1().Leases(c.namespace)
	now, seconds := metav1.NowMicro(), int32(lockTime/time.Second)
	spec := coordination.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds}
	l, err := leases.Get(ctx, lockName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: lockName, Namespace: c.namespace}, Spec: spec}
		_, err = leases.Create(ctx, l, metav1.CreateOptions{FieldManager: manager})
	} else if err == nil {
		if other := l.Spec.HolderIdentity; other != nil && *other != holder && l.Spec.RenewTime != nil &&
			now.Sub(l.Spec.RenewTime.Time) < lockTime {
			return model.Errorf(model.CodeTryAgain, "wait for its end; if it was killed, for half a minute",
				"%s installs, upgrades or removes weft in this cluster now", *other)
		}
		l.Spec = spec
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{FieldManager: manager})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return model.Errorf(model.CodeTryAgain, "wait for its end", "another process installs, upgrades or removes weft now")
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
