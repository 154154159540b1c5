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

// Config is what an Engine is made from.
type Config struct {
	StateDir string
	// Self is the program that understands container.Hidden, with its leading arguments.
	Self []string
	Net  *network.Plumber
	// Networks are the networks as they are now.
	Networks func() confdir.Snapshot
	Log      *slog.Logger
	Now      func() time.Time
	Step     func(name string) // a hook for fault tests; nil is fine
}

// Engine is the runtime. Calls about different sandboxes may run at the same time; those about one sandbox must not.
type Engine struct {
	cfg   Config
	log   *slog.Logger
	marks *checkpoint.Store
	boxes *boxTable
}

// box is a sandbox in memory.
type box struct {
	Record
	containers map[string]container.Spec // by id
}

// Record is config.json.
type Record struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Netns   string    `json:"netns,omitempty"`
	Config  PodConfig `json:"config"`
}

// PodConfig is what a sandbox is made from.
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
	// Caps are further capability arguments.
	Caps    map[string]any    `json:"caps,omitempty"`
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Grace is how long the pause process may take to end.
	Grace time.Duration `json:"grace,omitempty"`
}

func (c PodConfig) reservation() string {
	return fmt.Sprintf("%s_%s_%s_%d", c.Namespace, c.Name, c.UID, c.Attempt)
}

// New opens the state directory and learns what is in it. Recover has to run before anything else is done.
func New(cfg Config) (*Engine, error) {
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	e := &Engine{
		cfg: cfg, log: cfg.Log.With("room", "engine"), boxes: &boxTable{root: cfg.StateDir, byID: map[string]*box{}},
	}
	for _, dir := range []string{"names", "sandboxes", "netns"} {
		if err := os.MkdirAll(e.boxes.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	var err error
	if e.marks, err = checkpoint.Open(e.boxes.path("checkpoints")); err != nil {
		return nil, err
	}
	return e, e.boxes.load()
}

// ErrNotFound is wrapped by errors about a sandbox or container that is not there.
var ErrNotFound = errors.New("not found")

// State is what a sandbox is.
type State string

// The states of a sandbox, in CRI's terms.
const (
	Ready    State = "ready"
	NotReady State = "notready"
)

// Sandbox is a sandbox as it is now.
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
	e.boxes.mu.Lock()
	records := make([]Record, 0, len(e.boxes.byID))
	for _, b := range e.boxes.byID {
		records = append(records, b.Record)
	}
	e.boxes.mu.Unlock()
	out := make([]Sandbox, 0, len(records))
	for _, r := range records {
		out = append(out, e.boxes.inspect(r))
	}
	return out
}

// StatusOf lists the sandboxes and containers of a pod.
func (e *Engine) StatusOf(uid string) ([]Sandbox, []container.Status) {
	var boxes []Sandbox
	var cs []container.Status
	for _, r := range e.boxes.recordsOf(uid) {
		boxes = append(boxes, e.boxes.inspect(r))
		cs = append(cs, e.boxes.containersIn(r.ID)...)
	}
	return boxes, cs
}

// Containers lists all containers.
func (e *Engine) Containers() []container.Status {
	var out []container.Status
	for _, s := range e.boxes.ids() {
		out = append(out, e.boxes.containersIn(s)...)
	}
	return out
}

// step tells the fault tests where we are.
func (e *Engine) step(name string) { e.cfg.Step(name) }

// ctxFor bounds a call about the network: what kubelet allows a sandbox to take. When ctx ends, the plugins get a
// moment to end too: what a plugin leaves that is killed in the middle, only the better ones find again.
func ctxFor(ctx context.Context) (context.Context, context.CancelFunc) {
	const allowed, moment = 4 * time.Minute, 10 * time.Second
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), allowed)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-bounded.Done():
		case <-time.After(moment):
			cancel()
		}
	})
	return bounded, func() { stop(); cancel() }
}
