// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
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

	mu    sync.Mutex
	boxes map[string]*box // by id
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
	e := &Engine{cfg: cfg, log: cfg.Log.With("room", "engine"), boxes: map[string]*box{}}
	for _, dir := range []string{"names", "sandboxes", "netns"} {
		if err := os.MkdirAll(e.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	var err error
	if e.marks, err = checkpoint.Open(e.path("checkpoints")); err != nil {
		return nil, err
	}
	return e, e.load()
}

func (e *Engine) path(elem ...string) string {
	return filepath.Join(append([]string{e.cfg.StateDir}, elem...)...)
}

func (e *Engine) dir(id string, elem ...string) string {
	return filepath.Join(append([]string{e.cfg.StateDir, "sandboxes", id}, elem...)...)
}

// load fills the memory from the state directory. A sandbox whose record cannot be read is none: Recover removes it.
func (e *Engine) load() error {
	entries, err := os.ReadDir(e.path("sandboxes"))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, entry := range entries {
		var r Record
		if err := process.ReadJSON(e.dir(entry.Name(), "config.json"), &r); err != nil || r.ID != entry.Name() {
			continue
		}
		b := &box{Record: r, containers: map[string]container.Spec{}}
		inner, _ := os.ReadDir(e.dir(r.ID, "containers"))
		for _, c := range inner {
			st, err := container.Inspect(e.dir(r.ID, "containers", c.Name()))
			if err != nil || st.ID != c.Name() {
				// Killed while it was made: nothing runs, for the spec comes first.
				_ = os.RemoveAll(e.dir(r.ID, "containers", c.Name()))
				continue
			}
			b.containers[st.ID] = st.Spec
		}
		e.boxes[r.ID] = b
	}
	return nil
}

func (e *Engine) box(id string) (Record, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.boxes[id]
	if !ok {
		return Record{}, fmt.Errorf("sandbox %s: %w", id, ErrNotFound)
	}
	return b.Record, nil
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

// inspect looks at a sandbox. It is ready when its process lives and its network is ready.
func (e *Engine) inspect(r Record) Sandbox {
	s := Sandbox{Record: r, State: NotReady}
	var net readiness
	haveNet := process.ReadJSON(e.dir(r.ID, "ready.json"), &net) == nil
	havePause := process.ReadJSON(e.dir(r.ID, "pause.json"), &s.Pause) == nil
	if haveNet && havePause && process.Locked(e.dir(r.ID, "lock")) && s.Pause.Alive() {
		s.State, s.Net = Ready, net.Result
	}
	return s
}

// Sandboxes lists all sandboxes.
func (e *Engine) Sandboxes() []Sandbox {
	e.mu.Lock()
	records := make([]Record, 0, len(e.boxes))
	for _, b := range e.boxes {
		records = append(records, b.Record)
	}
	e.mu.Unlock()
	out := make([]Sandbox, 0, len(records))
	for _, r := range records {
		out = append(out, e.inspect(r))
	}
	return out
}

// StatusOf lists the sandboxes and containers of a pod.
func (e *Engine) StatusOf(uid string) ([]Sandbox, []container.Status) {
	var boxes []Sandbox
	var cs []container.Status
	for _, r := range e.recordsOf(uid) {
		boxes = append(boxes, e.inspect(r))
		cs = append(cs, e.containersIn(r.ID)...)
	}
	return boxes, cs
}

func (e *Engine) recordsOf(uid string) []Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Record
	for _, b := range e.boxes {
		if b.Config.UID == uid {
			out = append(out, b.Record)
		}
	}
	return out
}

func (e *Engine) containersIn(id string) []container.Status {
	e.mu.Lock()
	var specs []container.Spec
	if b, ok := e.boxes[id]; ok {
		for _, s := range b.containers {
			specs = append(specs, s)
		}
	}
	e.mu.Unlock()
	out := make([]container.Status, 0, len(specs))
	for _, s := range specs {
		out = append(out, container.Refresh(e.dir(id, "containers", s.ID), s))
	}
	return out
}

// Containers lists all containers.
func (e *Engine) Containers() []container.Status {
	var out []container.Status
	for _, s := range e.ids() {
		out = append(out, e.containersIn(s)...)
	}
	return out
}

func (e *Engine) ids() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]string, 0, len(e.boxes))
	for id := range e.boxes {
		out = append(out, id)
	}
	return out
}

func (e *Engine) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes, id)
}

// step tells the fault tests where we are.
func (e *Engine) step(format string, args ...any) { e.cfg.Step(fmt.Sprintf(format, args...)) }

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
