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

// The locks are flocks, so a killed call releases them. All plugin types share them.

const (
	gateName = "gate"
	// turnName is held by the call that waits for the exclusive gate; the others pass through it, so that it is not starved.
	turnName = "turn"
	draft    = ".tmp" // suffix of a lock's name: a record that is being written
)

// unlock removes a lock's file and the temporary file next to it, and then releases the lock.
func unlock(f *os.File, path string) {
	_ = os.Remove(path + draft)
	_ = os.Remove(path)
	_ = f.Close()
}

// Container locks a container until release is called.
func (j *Journal) Container(ctx context.Context, id string) (release func(), err error) {
	path := j.lockPath(id)
	f, err := j.acquire(ctx, path, flock.Exclusive)
	if err != nil {
		return nil, err
	}
	return func() { unlock(f, path) }, nil
}

// TryContainer is Container without waiting: ok is false while a call for the container is in progress.
func (j *Journal) TryContainer(id string) (release func(), ok bool) { return j.try(j.lockPath(id)) }

func (j *Journal) try(path string) (release func(), ok bool) {
	f, err := flock.TryOpen(path, flock.Exclusive, 0o600)
	if err != nil {
		return nil, false
	}
	return func() { unlock(f, path) }, true
}

// RLock acquires the gate in shared mode.
func (j *Journal) RLock(ctx context.Context) (release func(), err error) {
	turn, err := j.acquire(ctx, filepath.Join(j.locks, turnName), flock.Shared)
	if err != nil {
		return nil, err
	}
	defer func() { _ = turn.Close() }()
	f, err := j.acquire(ctx, filepath.Join(j.locks, gateName), flock.Shared)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Lock acquires the gate exclusively. New shared locks are blocked from the moment that it begins to wait.
func (j *Journal) Lock(ctx context.Context) (release func(), err error) {
	turn, err := j.acquire(ctx, filepath.Join(j.locks, turnName), flock.Exclusive)
	if err != nil {
		return nil, err
	}
	f, err := j.acquire(ctx, filepath.Join(j.locks, gateName), flock.Exclusive)
	if err != nil {
		_ = turn.Close()
		return nil, err
	}
	return func() { _ = f.Close(); _ = turn.Close() }, nil
}

// acquire waits for a flock.
func (j *Journal) acquire(ctx context.Context, path string, how flock.Mode) (*os.File, error) {
	f, err := flock.Open(ctx, path, how, 0o600)
	switch {
	case err == nil:
		return f, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, model.Errorf(model.CodeTryAgain, "another call is under way", "%w", err)
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

// TryLock is Lock without waiting: ok is false while another call is in progress.
func (j *Journal) TryLock() (release func(), ok bool) {
	f, err := flock.TryOpen(filepath.Join(j.locks, gateName), flock.Exclusive, 0o600)
	if err != nil {
		return nil, false
	}
	return func() { _ = f.Close() }, true
}

// SweepLocks removes the lock files of killed calls.
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
