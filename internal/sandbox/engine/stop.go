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

// StopPodSandbox takes the sandbox off its networks and ends what runs in it. It can be repeated.
func (e *Engine) StopPodSandbox(ctx context.Context, id string) error {
	r, err := e.boxes.box(id)
	if err != nil {
		return err
	}
	if err := e.setReady(id, nil); err != nil {
		return err
	}
	e.step("stop: readiness set to false")
	var errs []error
	if !r.Config.HostNetwork {
		if err := e.tearDownPod(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("tear down the network: %w", err))
		}
		e.step("stop: network torn down")
	}
	if err := e.stopSandbox(ctx, r); err != nil {
		errs = append(errs, fmt.Errorf("stop the sandbox: %w", err))
	}
	e.step("stop: sandbox stopped")
	return errors.Join(errs...)
}

// tearDownPod gives back what networks.json asked for, and forgets it when that worked.
func (e *Engine) tearDownPod(ctx context.Context, r Record) error {
	var as []network.Attachment
	err := process.ReadJSON(e.boxes.dir(r.ID, "networks.json"), &as)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was asked of any network yet, or all was given back
	}
	if err != nil {
		return err
	}
	ctx, cancel := ctxFor(ctx)
	defer cancel()
	if err := e.cfg.Net.TearDownPod(ctx, e.netPod(r), as); err != nil {
		return err
	}
	if err := os.Remove(e.boxes.dir(r.ID, "networks.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	return nil
}

// stopSandbox ends all processes of the sandbox, pause last, and unbinds the namespace when its network is given back.
func (e *Engine) stopSandbox(ctx context.Context, r Record) error {
	var errs []error
	for _, c := range e.boxes.containersIn(r.ID) {
		if c.State == container.Exited {
			continue
		}
		if err := container.Stop(ctx, e.boxes.dir(r.ID, "containers", c.ID), 0); err != nil {
			errs = append(errs, err)
		}
	}
	var pause process.ID
	if err := process.ReadJSON(e.boxes.dir(r.ID, "pause.json"), &pause); err == nil {
		if err := pause.End(ctx, max(r.Config.Grace, time.Second)); err != nil {
			errs = append(errs, fmt.Errorf("pause: %w", err))
		}
	}
	e.step("stop: pause ended")
	// Whatever escaped: a process in the node's process namespace, a pause process that was never written down.
	if err := process.KillMarked(ctx, container.Mark, r.ID); err != nil {
		errs = append(errs, err)
	}
	if _, err := os.Stat(e.boxes.dir(r.ID, "networks.json")); r.Netns != "" && errors.Is(err, os.ErrNotExist) {
		if err := netns.Remove(r.Netns); err != nil {
			errs = append(errs, err)
		}
		e.step("stop: namespace removed")
	}
	return errors.Join(errs...)
}

// RemovePodSandbox stops the sandbox and takes away everything that is left of it, the checkpoint last.
func (e *Engine) RemovePodSandbox(ctx context.Context, id string) error {
	r, err := e.boxes.box(id)
	if err != nil {
		return err
	}
	if err := e.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	for _, c := range e.boxes.containersIn(id) {
		if err := e.RemoveContainer(ctx, id, c.ID); err != nil {
			return err
		}
	}
	e.step("stop: containers removed")
	return e.erase(r)
}

// erase takes the files of a stopped sandbox away. The record goes before name and checkpoint: what is left of a
// sandbox without record is removed without asking.
func (e *Engine) erase(r Record) error {
	if err := os.RemoveAll(e.boxes.dir(r.ID)); err != nil {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	e.step("stop: directory removed")
	if err := e.dropName(r); err != nil {
		return err
	}
	e.step("stop: name given back")
	if err := e.marks.Remove(r.ID); err != nil {
		return err
	}
	e.step("stop: checkpoint removed")
	e.boxes.forget(r.ID)
	return nil
}

// dropName gives the name back, unless another sandbox has it by now.
func (e *Engine) dropName(r Record) error {
	path := e.boxes.path("names", r.Config.reservation())
	b, err := os.ReadFile(path)
	if err == nil && string(b) == r.ID+"\n" {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sandbox %s: name: %w", r.ID, err)
	}
	return nil
}

// AbandonPodSandbox is StopPodSandbox that gives up the networks which cannot be given back.
func (e *Engine) AbandonPodSandbox(ctx context.Context, id string) error {
	if err := os.Remove(e.boxes.dir(id, "networks.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	return e.StopPodSandbox(ctx, id)
}
