// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// StartContainer creates a container in a ready sandbox and starts it. If the command cannot be started, the container
// remains in state exited.
func (e *Engine) StartContainer(ctx context.Context, id string, spec container.Spec) error {
	r, err := e.sandboxes.record(id)
	if err != nil {
		return err
	}
	if err := process.ReadJSON(e.sandboxes.dir(id, "pause.json"), &spec.Pause); err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	spec.ID, spec.Sandbox, spec.PodUID, spec.Created = container.NewID(), id, r.Config.UID, e.cfg.Now()
	spec.HostNet, spec.HostIPC, spec.HostPID = r.Config.HostNetwork, r.Config.HostIPC, r.Config.HostPID
	spec.SharePID = r.Config.SharePID
	dir, err := container.Create(e.sandboxes.dir(id, "containers"), spec)
	if err != nil {
		return err
	}
	e.sandboxes.mu.Lock()
	if b, ok := e.sandboxes.byID[id]; ok {
		b.containers[spec.ID] = spec
	}
	e.sandboxes.mu.Unlock()
	e.failpoint("container: created")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := container.Start(ctx, e.cfg.Self, dir); err != nil {
		return err
	}
	e.failpoint("container: started")
	return nil
}

// StopContainer stops a container, with a grace period.
func (e *Engine) StopContainer(ctx context.Context, sandbox, id string, grace time.Duration) error {
	if err := container.Stop(ctx, e.sandboxes.dir(sandbox, "containers", id), grace); err != nil {
		return err
	}
	e.failpoint("container: stopped")
	return nil
}

// RemoveContainer removes a container, if it exists. It kills a running one.
func (e *Engine) RemoveContainer(ctx context.Context, sandbox, id string) error {
	dir := e.sandboxes.dir(sandbox, "containers", id)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := container.Stop(ctx, dir, 0); err != nil {
		return err
	}
	if err := container.Remove(dir); err != nil {
		return err
	}
	e.sandboxes.mu.Lock()
	if b, ok := e.sandboxes.byID[sandbox]; ok {
		delete(b.containers, id)
	}
	e.sandboxes.mu.Unlock()
	e.failpoint("container: removed")
	return nil
}

// SandboxDir returns the sandbox's directory, for files that its containers mount. They are removed with the sandbox.
func (e *Engine) SandboxDir(id string) string { return e.sandboxes.dir(id) }
