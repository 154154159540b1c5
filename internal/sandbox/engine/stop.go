// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/network"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// StopPodSandbox detaches the sandbox from its networks and stops its processes. It is idempotent.
func (e *Engine) StopPodSandbox(ctx context.Context, id string) error {
	r, err := e.sandboxes.record(id)
	if err != nil {
		return err
	}
	if err := e.setReady(id, nil); err != nil {
		return err
	}
	e.failpoint("stop: readiness set to false")
	var errs []error
	if !r.Config.HostNetwork {
		if err := e.tearDownPod(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("tear down the network: %w", err))
		}
		e.failpoint("stop: network torn down")
	}
	if err := e.stopSandbox(ctx, r); err != nil {
		errs = append(errs, fmt.Errorf("stop the sandbox: %w", err))
	}
	e.failpoint("stop: sandbox stopped")
	return errors.Join(errs...)
}

// tearDownPod detaches the sandbox from the networks in networks.json, and removes that file if all succeed.
func (e *Engine) tearDownPod(ctx context.Context, r Record) error {
	var as []network.Attachment
	err := process.ReadJSON(e.sandboxes.dir(r.ID, "networks.json"), &as)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no network was attached yet, or all are detached
	}
	if err != nil {
		return err
	}
	ctx, cancel := networkContext(ctx)
	defer cancel()
	if err := e.cfg.Net.TearDownPod(ctx, e.netPod(r), as); err != nil {
		return err
	}
	if err := os.Remove(e.sandboxes.dir(r.ID, "networks.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	return nil
}

// stopSandbox stops all processes of the sandbox, pause last, and unmounts the network namespace if all networks are
// detached.
func (e *Engine) stopSandbox(ctx context.Context, r Record) error {
	var errs []error
	for _, c := range e.sandboxes.containersIn(r.ID) {
		if c.State == container.Exited {
			continue
		}
		if err := container.Stop(ctx, e.sandboxes.dir(r.ID, "containers", c.ID), 0); err != nil {
			errs = append(errs, err)
		}
	}
	var pause process.ID
	if err := process.ReadJSON(e.sandboxes.dir(r.ID, "pause.json"), &pause); err == nil {
		if err := pause.Terminate(ctx, max(r.Config.Grace, time.Second)); err != nil {
			errs = append(errs, fmt.Errorf("pause: %w", err))
		}
	}
	e.failpoint("stop: pause stopped")
	// Remaining processes are in the node's PID namespace, or a pause process that was not recorded.
	if err := process.KillByEnv(ctx, container.EnvSandbox, r.ID); err != nil {
		errs = append(errs, err)
	}
	if _, err := os.Stat(e.sandboxes.dir(r.ID, "networks.json")); r.Netns != "" && errors.Is(err, os.ErrNotExist) {
		if err := netns.Remove(r.Netns); err != nil {
			errs = append(errs, err)
		}
		e.failpoint("stop: namespace removed")
	}
	return errors.Join(errs...)
}

// RemovePodSandbox stops the sandbox and removes everything that belongs to it, the checkpoint last.
func (e *Engine) RemovePodSandbox(ctx context.Context, id string) error {
	r, err := e.sandboxes.record(id)
	if err != nil {
		return err
	}
	if err := e.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	for _, c := range e.sandboxes.containersIn(id) {
		if err := e.RemoveContainer(ctx, id, c.ID); err != nil {
			return err
		}
	}
	e.failpoint("stop: containers removed")
	return e.removeFiles(r)
}

// removeFiles removes the files of a stopped sandbox. It removes the record before name and checkpoint, because Recover
// removes those without a record.
func (e *Engine) removeFiles(r Record) error {
	if err := os.RemoveAll(e.sandboxes.dir(r.ID)); err != nil {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	e.failpoint("stop: directory removed")
	if err := e.releaseName(r); err != nil {
		return err
	}
	e.failpoint("stop: name released")
	if err := e.checkpoints.Remove(r.ID); err != nil {
		return err
	}
	e.failpoint("stop: checkpoint removed")
	e.sandboxes.forget(r.ID)
	return nil
}

// releaseName releases the sandbox's name, unless another sandbox has it now.
func (e *Engine) releaseName(r Record) error {
	path := e.sandboxes.path("names", r.Config.sandboxName())
	b, err := os.ReadFile(path)
	if err == nil && string(b) == r.ID+"\n" {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sandbox %s: name: %w", r.ID, err)
	}
	return nil
}

// AbandonPodSandbox is like StopPodSandbox, but does not detach the sandbox from its networks.
func (e *Engine) AbandonPodSandbox(ctx context.Context, id string) error {
	if err := os.Remove(e.sandboxes.dir(id, "networks.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	return e.StopPodSandbox(ctx, id)
}
