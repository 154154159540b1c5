// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
)

// The locks are flocks, so a killed call holds none. All plugin types share them.

const (
	gateName = "gate"
	turnName = "turn" // whoever wants to be alone at the gate holds it; all others pass it on their way
	draft    = ".tmp" // behind a lock's name: a record that is being written
)

// leave removes a lock's file, with what was left beside it, and then gives the lock back.
func leave(f *os.File, path string) {
	_ = os.Remove(path + draft)
	_ = os.Remove(path)
	_ = f.Close()
}

// Container keeps other calls for the container out until release is called.
func (j *Journal) Container(ctx context.Context, id string) (release func(), err error) {
	path := j.lockPath(id)
	f, err := j.lock(ctx, path, flock.Exclusive)
	if err != nil {
		return nil, err
	}
	return func() { leave(f, path) }, nil
}

// TryContainer is Container that does not wait: ok is false while a call for the container is under way.
func (j *Journal) TryContainer(id string) (release func(), ok bool) { return j.try(j.lockPath(id)) }

func (j *Journal) try(path string) (release func(), ok bool) {
	f, err := flock.TryOpen(path, flock.Exclusive, 0o600)
	if err != nil {
		return nil, false
	}
	return func() { leave(f, path) }, true
}

// Together joins the calls that go side by side: all but those that are Alone.
func (j *Journal) Together(ctx context.Context) (release func(), err error) {
	turn, err := j.lock(ctx, filepath.Join(j.locks, turnName), flock.Shared)
	if err != nil {
		return nil, err
	}
	defer func() { _ = turn.Close() }()
	f, err := j.lock(ctx, filepath.Join(j.locks, gateName), flock.Shared)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Alone waits until no other call is under way and keeps new ones out, from the moment that it begins to wait.
func (j *Journal) Alone(ctx context.Context) (release func(), err error) {
	turn, err := j.lock(ctx, filepath.Join(j.locks, turnName), flock.Exclusive)
	if err != nil {
		return nil, err
	}
	f, err := j.lock(ctx, filepath.Join(j.locks, gateName), flock.Exclusive)
	if err != nil {
		_ = turn.Close()
		return nil, err
	}
	return func() { _ = f.Close(); _ = turn.Close() }, nil
}

// lock waits for a lock.
func (j *Journal) lock(ctx context.Context, path string, how flock.Mode) (*os.File, error) {
	f, err := flock.Open(ctx, path, how, 0o600)
	switch {
	case err == nil:
		return f, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, model.Faultf(model.CodeTryAgain, "another call is under way", "%w", err)
	}
	return nil, unusable(filepath.Dir(j.locks), err)
}

func (j *Journal) lockPath(id string) string {
	const most = 200
	if len(id) > most {
		sum := sha256.Sum256([]byte(id))
		id = hashed + hex.EncodeToString(sum[:])
	}
	return filepath.Join(j.locks, id+".lock")
}

// TryAlone is Alone that does not wait: ok is false while another call is under way.
func (j *Journal) TryAlone() (release func(), ok bool) {
	f, err := flock.TryOpen(filepath.Join(j.locks, gateName), flock.Exclusive, 0o600)
	if err != nil {
		return nil, false
	}
	return func() { _ = f.Close() }, true
}

// SweepLocks removes the lock files that killed calls left.
func (j *Journal) SweepLocks() error {
	entries, err := os.ReadDir(j.locks)
	if err != nil {
		return unusable(filepath.Dir(j.locks), err)
	}
	for _, e := range entries {
		if e.Name() == gateName || e.Name() == turnName {
			continue
		}
		if release, ok := j.try(filepath.Join(j.locks, strings.TrimSuffix(e.Name(), draft))); ok {
			release()
		}
	}
	return nil
}
