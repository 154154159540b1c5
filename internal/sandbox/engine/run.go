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

// RunPodSandbox makes a sandbox and attaches it to its networks. When a step after the creation fails, the sandbox
// remains, not ready, for the garbage collection; its id is returned beside the error.
func (e *Engine) RunPodSandbox(ctx context.Context, cfg PodConfig) (id string, err error) {
	if err := os.MkdirAll(cfg.LogDir, 0o755); err != nil {
		return "", fmt.Errorf("log directory: %w", err)
	}
	e.step("run: log directory made")
	if err := e.ensureImage(); err != nil {
		return "", err
	}
	r, err := e.createSandbox(ctx, cfg)
	if err != nil {
		return "", err
	}
	e.step("run: sandbox created")
	if err := e.setReady(r.ID, nil); err != nil {
		return r.ID, err
	}
	e.step("run: readiness set to false")
	if err := e.marks.Write(r.checkpoint()); err != nil {
		return r.ID, err
	}
	e.step("run: checkpoint written")
	if err := e.startSandbox(ctx, r); err != nil {
		return r.ID, err
	}
	e.step("run: sandbox started")
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
	e.step("run: network set up")
	err = e.setReady(r.ID, &readiness{res})
	e.step("run: readiness set to true")
	return r.ID, err
}

// ensureImage makes sure that there is something to run as pause process: this program itself.
func (e *Engine) ensureImage() error {
	if _, err := exec.LookPath(e.cfg.Self[0]); err != nil {
		return fmt.Errorf("sandbox image: %w", err)
	}
	return nil
}

// createSandbox makes the sandbox's directory and takes its name. A name that a crash left behind is recovered: the
// stale sandbox is removed, then the name is taken again.
func (e *Engine) createSandbox(ctx context.Context, cfg PodConfig) (Record, error) {
	r := Record{ID: container.NewID(), Created: e.cfg.Now(), Config: cfg}
	if !cfg.HostNetwork {
		r.Netns = e.boxes.path("netns", r.ID)
	}
	err := e.takeName(r)
	for range 3 {
		if !errors.Is(err, os.ErrExist) {
			break
		}
		stale, e1 := os.ReadFile(e.boxes.path("names", cfg.reservation()))
		if e1 != nil && !errors.Is(e1, os.ErrNotExist) {
			return r, fmt.Errorf("sandbox name %s: %w", cfg.reservation(), e1)
		}
		old := strings.TrimSpace(string(stale))
		e.log.Warn("the name of a sandbox is taken by a stale one, which is removed", "name", cfg.reservation(), "stale", old)
		if e1 := e.RemovePodSandbox(ctx, old); e1 != nil && !errors.Is(e1, ErrNotFound) {
			return r, fmt.Errorf("sandbox name %s is taken by %s: %w", cfg.reservation(), old, e1)
		}
		_ = os.Remove(e.boxes.path("names", cfg.reservation()))
		err = e.takeName(r)
	}
	if err != nil {
		return r, fmt.Errorf("sandbox name %s: %w", cfg.reservation(), err)
	}
	e.step("run: name taken")
	if err := e.makeDir(r); err != nil {
		return r, errors.Join(fmt.Errorf("sandbox: %w", err), os.RemoveAll(e.boxes.dir(r.ID)),
			os.Remove(e.boxes.path("names", cfg.reservation())))
	}
	e.boxes.mu.Lock()
	e.boxes.byID[r.ID] = &box{Record: r, containers: map[string]container.Spec{}}
	e.boxes.mu.Unlock()
	return r, nil
}

// takeName makes the name's file with its content in one step; os.ErrExist when it is taken.
func (e *Engine) takeName(r Record) error {
	tmp := e.boxes.path("names", "."+r.ID)
	if err := os.WriteFile(tmp, []byte(r.ID+"\n"), 0o600); err != nil {
		return err
	}
	err := os.Link(tmp, e.boxes.path("names", r.Config.reservation()))
	return errors.Join(err, os.Remove(tmp))
}

func (e *Engine) makeDir(r Record) error {
	if err := os.MkdirAll(e.boxes.dir(r.ID, "containers"), 0o700); err != nil {
		return err
	}
	e.step("run: directory made")
	return process.WriteJSON(e.boxes.dir(r.ID, "config.json"), r)
}

// setReady writes down that the network is ready, or with nil that it is not.
func (e *Engine) setReady(id string, ready *readiness) error {
	path := e.boxes.dir(id, "ready.json")
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

// startSandbox makes the namespaces and starts the process that holds them.
func (e *Engine) startSandbox(ctx context.Context, r Record) error {
	spec := container.PauseSpec{Sandbox: r.ID, HostIPC: r.Config.HostIPC, HostPID: r.Config.HostPID}
	if !r.Config.HostNetwork {
		ns, err := netns.New(r.Netns)
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
		spec.Netns, spec.Hostname = ns, r.Config.Hostname
		e.step("run: namespace made")
		if err := setSysctls(ns, r.Config.Sysctls); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	id, err := container.StartPause(ctx, e.cfg.Self, e.boxes.dir(r.ID), spec)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	e.step("run: pause started")
	return process.WriteJSON(e.boxes.dir(r.ID, "pause.json"), id)
}

// setSysctls sets the pod's net.* sysctls; only they belong to a namespace that is ours alone.
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
	if err := process.WriteJSON(e.boxes.dir(r.ID, "networks.json"), as); err != nil {
		return network.Result{}, err
	}
	e.step("run: networks written")
	ctx, cancel := ctxFor(ctx)
	defer cancel()
	return e.cfg.Net.SetUpPod(ctx, e.netPod(r), as)
}

// netPod is the sandbox as its networks see it.
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
	if machine := r.Config.Annotations[machineNote]; machine != "" {
		args = append(args, [2]string{"WEFT_VM", r.Config.Namespace + "/" + machine})
	}
	return network.Pod{ID: r.ID, Netns: r.Netns, Caps: caps, Args: args}
}

// machineNote is on the pods around KubeVirt's machines, and names the machine. There is no API server that weft could
// ask for it.
const machineNote = "kubevirt.io/domain"
