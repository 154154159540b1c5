// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/checkpoint"
	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/network"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// RunPodSandbox creates a sandbox and attaches it to its networks. If a step after the creation fails, it returns the ID
// and an error; the sandbox remains, not ready, until it is garbage-collected.
func (e *Engine) RunPodSandbox(ctx context.Context, cfg PodConfig) (id string, err error) {
	if err := os.MkdirAll(cfg.LogDir, 0o755); err != nil {
		return "", fmt.Errorf("log directory: %w", err)
	}
	e.failpoint("run: log directory created")
	if err := e.ensureImage(); err != nil {
		return "", err
	}
	r, err := e.createSandbox(ctx, cfg)
	if err != nil {
		return "", err
	}
	e.failpoint("run: sandbox created")
	if err := e.setReady(r.ID, nil); err != nil {
		return r.ID, err
	}
	e.failpoint("run: readiness set to false")
	if err := e.checkpoints.Write(r.checkpoint()); err != nil {
		return r.ID, err
	}
	e.failpoint("run: checkpoint written")
	if err := e.startSandbox(ctx, r); err != nil {
		return r.ID, err
	}
	e.failpoint("run: sandbox started")
	if cfg.HostNetwork {
		return r.ID, e.setReady(r.ID, &readiness{})
	}
	res, err := e.setUpPod(ctx, r)
	if err != nil {
		err = fmt.Errorf("set up the network: %w", err)
		if e1 := e.tearDownPod(ctx, r); e1 != nil {
			err = errors.Join(err, fmt.Errorf("tear down the network: %w", e1))
		}
		if e2 := e.stopSandbox(context.WithoutCancel(ctx), r); e2 != nil {
			err = errors.Join(err, fmt.Errorf("stop the sandbox: %w", e2))
		}
		return r.ID, err
	}
	e.failpoint("run: network set up")
	err = e.setReady(r.ID, &readiness{res})
	e.failpoint("run: readiness set to true")
	return r.ID, err
}

// ensureImage checks that the pause process, which is this program, can be executed.
func (e *Engine) ensureImage() error {
	if _, err := exec.LookPath(e.cfg.Self[0]); err != nil {
		return fmt.Errorf("sandbox image: %w", err)
	}
	return nil
}

// createSandbox reserves the sandbox's name and creates its directory. If a stale sandbox has the name, after a crash,
// createSandbox removes that and reserves the name again.
func (e *Engine) createSandbox(ctx context.Context, cfg PodConfig) (Record, error) {
	r := Record{ID: container.NewID(), Created: e.cfg.Now(), Config: cfg}
	if !cfg.HostNetwork {
		r.Netns = e.sandboxes.path("netns", r.ID)
	}
	err := e.reserveName(r)
	for range 3 {
		if !errors.Is(err, os.ErrExist) {
			break
		}
		stale, e1 := os.ReadFile(e.sandboxes.path("names", cfg.sandboxName()))
		if e1 != nil && !errors.Is(e1, os.ErrNotExist) {
			return r, fmt.Errorf("sandbox name %s: %w", cfg.sandboxName(), e1)
		}
		old := strings.TrimSpace(string(stale))
		e.log.Warn("removing a stale sandbox with the same name", "name", cfg.sandboxName(), "sandbox", old)
		if e1 := e.RemovePodSandbox(ctx, old); e1 != nil && !errors.Is(e1, ErrNotFound) {
			return r, fmt.Errorf("sandbox name %s is in use by %s: %w", cfg.sandboxName(), old, e1)
		}
		_ = os.Remove(e.sandboxes.path("names", cfg.sandboxName()))
		err = e.reserveName(r)
	}
	if err != nil {
		return r, fmt.Errorf("sandbox name %s: %w", cfg.sandboxName(), err)
	}
	e.failpoint("run: name reserved")
	if err := e.makeDir(r); err != nil {
		return r, errors.Join(fmt.Errorf("sandbox: %w", err), os.RemoveAll(e.sandboxes.dir(r.ID)),
			os.Remove(e.sandboxes.path("names", cfg.sandboxName())))
	}
	e.sandboxes.mu.Lock()
	e.sandboxes.byID[r.ID] = &entry{Record: r, containers: map[string]container.Spec{}}
	e.sandboxes.mu.Unlock()
	return r, nil
}

// reserveName creates the name's file atomically; it returns os.ErrExist if the name is reserved.
func (e *Engine) reserveName(r Record) error {
	tmp := e.sandboxes.path("names", "."+r.ID)
	if err := os.WriteFile(tmp, []byte(r.ID+"\n"), 0o600); err != nil {
		return err
	}
	err := os.Link(tmp, e.sandboxes.path("names", r.Config.sandboxName()))
	return errors.Join(err, os.Remove(tmp))
}

func (e *Engine) makeDir(r Record) error {
	if err := os.MkdirAll(e.sandboxes.dir(r.ID, "containers"), 0o700); err != nil {
		return err
	}
	e.failpoint("run: directory created")
	return process.WriteJSON(e.sandboxes.dir(r.ID, "config.json"), r)
}

// setReady records that the network is ready, or, with nil, that it is not.
func (e *Engine) setReady(id string, ready *readiness) error {
	path := e.sandboxes.dir(id, "ready.json")
	if ready != nil {
		return process.WriteJSON(path, ready)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sandbox %s: readiness: %w", id, err)
	}
	return nil
}

func (r Record) checkpoint() checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		ID: r.ID, Name: r.Config.Name, Namespace: r.Config.Namespace, UID: r.Config.UID, Attempt: r.Config.Attempt,
		HostNetwork: r.Config.HostNetwork, PortMappings: r.Config.PortMappings, Netns: r.Netns, Created: r.Created,
	}
}

// startSandbox creates the namespaces and starts the pause process that holds them.
func (e *Engine) startSandbox(ctx context.Context, r Record) error {
	spec := container.PauseSpec{Sandbox: r.ID, HostIPC: r.Config.HostIPC, HostPID: r.Config.HostPID}
	if !r.Config.HostNetwork {
		ns, err := netns.New(r.Netns)
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
		spec.Netns, spec.Hostname = ns, r.Config.Hostname
		e.failpoint("run: namespace created")
		if err := setSysctls(ns, r.Config.Sysctls); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	id, err := container.StartPause(ctx, e.cfg.Self, e.sandboxes.dir(r.ID), spec)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	e.failpoint("run: pause started")
	return process.WriteJSON(e.sandboxes.dir(r.ID, "pause.json"), id)
}

// setSysctls sets the pod's net.* sysctls. Other sysctls do not belong to the network namespace.
func setSysctls(ns *netns.NS, want map[string]string) error {
	return ns.Do(func() error {
		for k, v := range want {
			path := filepath.Join("/proc/sys", strings.ReplaceAll(k, ".", "/"))
			if err := os.WriteFile(path, []byte(v), 0o644); err != nil {
				return fmt.Errorf("sysctl %s=%s: %w", k, v, err)
			}
		}
		return nil
	})
}

func (e *Engine) setUpPod(ctx context.Context, r Record) (network.Result, error) {
	as, err := network.Plan(e.cfg.Networks())
	if err != nil {
		return network.Result{}, err
	}
	if err := process.WriteJSON(e.sandboxes.dir(r.ID, "networks.json"), as); err != nil {
		return network.Result{}, err
	}
	e.failpoint("run: networks written")
	ctx, cancel := networkContext(ctx)
	defer cancel()
	return e.cfg.Net.SetUpPod(ctx, e.netPod(r), as)
}

// netPod returns the arguments of the plugins for a sandbox.
func (e *Engine) netPod(r Record) network.Pod {
	caps := map[string]any{}
	for k, v := range r.Config.Caps {
		caps[k] = v
	}
	if len(r.Config.PortMappings) > 0 {
		caps["portMappings"] = r.Config.PortMappings
	}
	args := [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", r.Config.Namespace},
		{"K8S_POD_NAME", r.Config.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", r.ID},
		{"K8S_POD_UID", r.Config.UID},
	}
	if vm := r.Config.Annotations[domainAnnotation]; vm != "" {
		args = append(args, [2]string{"WEFT_VM", r.Config.Namespace + "/" + vm})
	}
	return network.Pod{ID: r.ID, Netns: r.Netns, Caps: caps, Args: args}
}

// domainAnnotation names the VM on the pods of KubeVirt's VMs. Without an API server, weft gets the name by CNI_ARGS.
const domainAnnotation = "kubevirt.io/domain"
