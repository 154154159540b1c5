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

// StartContainer creates a container in a ready sandbox and starts it. When the command cannot be started the container
// remains, exited.
func (e *Engine) StartContainer(ctx context.Context, id string, spec container.Spec) error {
	r, err := e.boxes.box(id)
	if err != nil {
		return err
	}
	if err := process.ReadJSON(e.boxes.dir(id, "pause.json"), &spec.Pause); err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	spec.ID, spec.Sandbox, spec.PodUID, spec.Created = container.NewID(), id, r.Config.UID, e.cfg.Now()
	spec.HostNet, spec.HostIPC, spec.HostPID = r.Config.HostNetwork, r.Config.HostIPC, r.Config.HostPID
	spec.SharePID = r.Config.SharePID
	dir, err := container.Create(e.boxes.dir(id, "containers"), spec)
	if err != nil {
		return err
	}
	e.boxes.mu.Lock()
	if b, ok := e.boxes.byID[id]; ok {
		b.containers[spec.ID] = spec
	}
	e.boxes.mu.Unlock()
	e.step("container: created")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := container.Start(ctx, e.cfg.Self, dir); err != nil {
		return err
	}
	e.step("container: started")
	return nil
}

// StopContainer ends a container, with a grace period.
func (e *Engine) StopContainer(ctx context.Context, sandbox, id string, grace time.Duration) error {
	if err := container.Stop(ctx, e.boxes.dir(sandbox, "containers", id), grace); err != nil {
		return err
	}
	e.step("container: stopped")
	return nil
}

// RemoveContainer takes a container away; one that runs is killed. One that is not there is no error.
func (e *Engine) RemoveContainer(ctx context.Context, sandbox, id string) error {
	dir := e.boxes.dir(sandbox, "containers", id)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := container.Stop(ctx, dir, 0); err != nil {
		return err
	}
	if err := container.Remove(dir); err != nil {
		return err
	}
	e.boxes.mu.Lock()
	if b, ok := e.boxes.byID[sandbox]; ok {
		delete(b.containers, id)
	}
	e.boxes.mu.Unlock()
	e.step("container: removed")
	return nil
}

// SandboxDir is where files for a sandbox's containers may be put; they go with it.
func (e *Engine) SandboxDir(id string) string { return e.boxes.dir(id) }
