// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/sandbox/checkpoint"
	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/network"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Config configures an Engine.
type Config struct {
	StateDir string
	// Self is a program that calls container.Reexec, with its leading arguments.
	Self []string
	Net  *network.Attacher
	// Networks returns the current network configurations.
	Networks func() confdir.Snapshot
	Log      *slog.Logger
	Now      func() time.Time
	// Failpoint, which may be nil, is called at each step.
	Failpoint func(name string)
}

// Engine is the container runtime. Calls for different sandboxes may run concurrently, calls for one sandbox must not.
type Engine struct {
	cfg         Config
	log         *slog.Logger
	checkpoints *checkpoint.Store
	sandboxes   *sandboxTable
}

// entry is a sandbox in memory.
type entry struct {
	Record
	containers map[string]container.Spec // by ID
}

// Record is config.json.
type Record struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Netns   string    `json:"netns,omitempty"`
	Config  PodConfig `json:"config"`
}

// PodConfig is the configuration of a pod sandbox.
type PodConfig struct {
	Namespace    string                   `json:"namespace"`
	Name         string                   `json:"name"`
	UID          string                   `json:"uid"`
	Attempt      int                      `json:"attempt"`
	Hostname     string                   `json:"hostname,omitempty"`
	LogDir       string                   `json:"logDir"`
	Labels       map[string]string        `json:"labels,omitempty"`
	Annotations  map[string]string        `json:"annotations,omitempty"`
	HostNetwork  bool                     `json:"hostNetwork,omitempty"`
	HostIPC      bool                     `json:"hostIPC,omitempty"`
	HostPID      bool                     `json:"hostPID,omitempty"`
	SharePID     bool                     `json:"sharePID,omitempty"`
	PortMappings []checkpoint.PortMapping `json:"portMappings,omitempty"`
	// Caps are additional capability arguments.
	Caps    map[string]any    `json:"caps,omitempty"`
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Grace is the grace period of the pause process.
	Grace time.Duration `json:"grace,omitempty"`
}

// sandboxName is unique among the sandboxes of the node.
func (c PodConfig) sandboxName() string {
	return fmt.Sprintf("%s_%s_%s_%d", c.Namespace, c.Name, c.UID, c.Attempt)
}

// New opens the state directory and reads it. The caller must call Recover before any other method.
func New(cfg Config) (*Engine, error) {
	if cfg.Failpoint == nil {
		cfg.Failpoint = func(string) {}
	}
	e := &Engine{
		cfg: cfg, log: cfg.Log.With("component", "engine"),
		sandboxes: &sandboxTable{root: cfg.StateDir, byID: map[string]*entry{}},
	}
	for _, dir := range []string{"names", "sandboxes", "netns"} {
		if err := os.MkdirAll(e.sandboxes.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	var err error
	if e.checkpoints, err = checkpoint.Open(e.sandboxes.path("checkpoints")); err != nil {
		return nil, err
	}
	return e, e.sandboxes.load()
}

// ErrNotFound is wrapped by errors about a sandbox or container that does not exist.
var ErrNotFound = errors.New("not found")

// State is the state of a sandbox.
type State string

// The sandbox states of CRI.
const (
	Ready    State = "ready"
	NotReady State = "notready"
)

// Sandbox is a sandbox and its current state.
type Sandbox struct {
	Record
	State State          `json:"state"`
	Net   network.Result `json:"net"`
	Pause process.ID     `json:"pause,omitzero"`
}

// readiness is ready.json.
type readiness struct {
	network.Result
}

// Sandboxes lists all sandboxes.
func (e *Engine) Sandboxes() []Sandbox {
	e.sandboxes.mu.Lock()
	records := make([]Record, 0, len(e.sandboxes.byID))
	for _, b := range e.sandboxes.byID {
		records = append(records, b.Record)
	}
	e.sandboxes.mu.Unlock()
	out := make([]Sandbox, 0, len(records))
	for _, r := range records {
		out = append(out, e.sandboxes.inspect(r))
	}
	return out
}

// StatusOf lists the sandboxes and containers of a pod.
func (e *Engine) StatusOf(uid string) ([]Sandbox, []container.Status) {
	var sandboxes []Sandbox
	var cs []container.Status
	for _, r := range e.sandboxes.recordsOf(uid) {
		sandboxes = append(sandboxes, e.sandboxes.inspect(r))
		cs = append(cs, e.sandboxes.containersIn(r.ID)...)
	}
	return sandboxes, cs
}

// Containers lists all containers.
func (e *Engine) Containers() []container.Status {
	var out []container.Status
	for _, s := range e.sandboxes.ids() {
		out = append(out, e.sandboxes.containersIn(s)...)
	}
	return out
}

func (e *Engine) failpoint(name string) { e.cfg.Failpoint(name) }

// networkContext bounds a call of the plugins by the time that the kubelet allows for a sandbox. When ctx ends, the
// plugins get a grace period, because many plugins do not clean up what they leave when they are killed.
func networkContext(ctx context.Context) (context.Context, context.CancelFunc) {
	const timeout, grace = 4 * time.Minute, 10 * time.Second
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-bounded.Done():
		case <-time.After(grace):
			cancel()
		}
	})
	return bounded, func() { stop(); cancel() }
}
