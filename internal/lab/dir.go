// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/lab/cut"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/wires"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Dir is a lab's state directory, an absolute path.
type Dir string

const (
	markerName = "lab.json"
	lockName   = "lock"
	// maxPath is the kernel's limit of a socket's path, in bytes.
	maxPath = 107
	// maxSocket is the length of the longest socket path in a state directory that `weft lab up` creates.
	maxSocket = len("/nodes/node200/sandbox/sandbox.sock")
)

// At returns the Dir of a user's path.
func At(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		// A symbolic link to a lab is that lab.
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			abs = real
		}
	}
	if err != nil {
		return "", fmt.Errorf("state directory %q: %w", path, err)
	}
	if len(abs)+maxSocket > maxPath {
		return "", model.Errorf(model.CodeInvalidConf, fmt.Sprintf("choose a path of at most %d bytes", maxPath-maxSocket),
			"state directory %q is too long for the sockets in it", abs)
	}
	return Dir(abs), nil
}

// CheckNode returns an error if the sockets of a node of this name do not fit into the state directory.
func (d Dir) CheckNode(name string) error {
	const sockets = "/sandbox/sandbox.sock"
	if len(d.Node(name))+len(sockets) > maxPath {
		return model.Errorf(model.CodeInvalidConf, "choose a shorter name", "node %q: the name is too long for the sockets in %s", name, d)
	}
	return nil
}

func (d Dir) at(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// NS returns the path of a node's network namespace.
func (d Dir) NS(node string) string { return d.at("ns", node) }

// Net returns the lab's network.
func (d Dir) Net() wires.Net { return wires.Net{NS: d.NS} }

// Store returns the directory of the cluster's manifests.
func (d Dir) Store() string { return d.at("store") }

// Bin returns the CNI binary directory.
func (d Dir) Bin() string { return d.at("bin") }

// Node returns a path in a node's directory.
func (d Dir) Node(node string, elem ...string) string {
	return d.at(append([]string{"nodes", node}, elem...)...)
}

// Marker identifies the lab of a state directory.
type Marker struct {
	Version int           `json:"weftLab"`
	Phase   string        `json:"phase"` // starting, up, going
	Layout  layout.Layout `json:"layout"`
	// Created is when up was called; zero for a lab of an older version.
	Created time.Time `json:"created,omitzero"`
	// Agent is the program that nodes run as their agent, AgentEnv its additional environment.
	Agent    string   `json:"agent,omitempty"`
	AgentEnv []string `json:"agentEnv,omitempty"`
	// Joining are the nodes that are being added, and Leaving those that are being removed. Neither are in Layout, and no
	// pods are bound to them. A command that is repeated completes one that was killed.
	Joining []layout.Node `json:"joining,omitempty"`
	Leaving []layout.Node `json:"leaving,omitempty"`
	// Cuts are the frames that the wires lose.
	Cuts []cut.Cut `json:"cuts,omitempty"`
}

const markerVersion = 1

// The phases of a lab.
const (
	phaseStarting = "starting"
	phaseUp       = "up"
)

// read reads the marker. It returns os.ErrNotExist if there is no lab.
func (d Dir) read() (Marker, error) {
	var m Marker
	b, err := os.ReadFile(d.at(markerName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Version == 0 {
		return m, model.Errorf(model.CodeDecode, "choose another --dir, or remove the directory yourself",
			"state directory %s: %s is not the marker of a lab", d, markerName)
	}
	if m.Version > markerVersion {
		return m, model.Errorf(model.CodeDecode, "use the version of weft that created it",
			"state directory %s was created by a newer version of weft (%d)", d, m.Version)
	}
	return m, nil
}

// Write replaces the marker.
func (d Dir) Write(m Marker) error {
	m.Version = markerVersion
	return process.WriteJSON(d.at(markerName), m)
}

// Open reads the layout of the lab in d.
func (d Dir) Open() (Marker, error) {
	m, err := d.read()
	if errors.Is(err, os.ErrNotExist) {
		return m, d.noLab()
	}
	return m, err
}

func (d Dir) noLab() error {
	return model.Errorf(model.CodeInvalidConf, "create one with `weft lab up`, or choose its directory with --dir",
		"no lab in %s", d)
}

// notUp returns the error for a lab that up has not completed.
func notUp(d Dir, phase string) error {
	return model.Errorf(model.CodeTryAgain,
		fmt.Sprintf("wait for `weft lab up`; if it was killed, repeat it or remove the lab with `weft lab down --dir %s`", d),
		"the lab in %s is not up (%s)", d, phase)
}

// lock locks the state directory, which must exist. It waits two seconds for another command.
func (d Dir) lock(ctx context.Context) (unlock func(), err error) {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	f, err := flock.Open(limited, d.at(lockName), flock.Exclusive, 0o644)
	switch {
	case err == nil:
		return func() { _ = f.Close() }, nil
	case limited.Err() != nil && errors.Is(err, limited.Err()):
		return nil, model.Errorf(model.CodeTryAgain, "wait for it, or stop it",
			"another weft command is using the lab in %s", d)
	}
	return nil, d.unwritable(err)
}

// locked reports whether a command is using the lab.
func (d Dir) locked() bool {
	f, err := os.Open(d.at(lockName))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(flock.Try(f.Fd(), flock.Shared), flock.ErrHeld)
}

func (d Dir) unwritable(err error) error {
	return model.Errorf(model.CodeIO, "run as root, or choose another one with --dir",
		"state directory %s is not writable: %w", d, withoutPath(err))
}

// withoutPath removes the path from a file error whose message contains it already.
func withoutPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// claim creates and locks the directory, or refuses it if it belongs to something else. It returns the marker of an earlier
// lab, if any.
func (d Dir) claim(ctx context.Context) (unlock func(), old *Marker, err error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, nil, d.unwritable(err)
	}
	if err := d.checkForeign(); err != nil {
		return nil, nil, err
	}
	if unlock, err = d.lock(ctx); err != nil {
		return nil, nil, err
	}
	m, err := d.read()
	switch {
	case err == nil:
		return unlock, &m, nil
	case errors.Is(err, os.ErrNotExist):
		return unlock, nil, nil
	}
	unlock()
	return nil, nil, err
}

// checkForeign refuses a directory with files of other programs, which must never be touched.
func (d Dir) checkForeign() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return d.unwritable(err)
	}
	for _, e := range entries {
		if e.Name() == markerName {
			return nil
		}
	}
	for _, e := range entries {
		if e.Name() != lockName && !strings.HasPrefix(e.Name(), "."+markerName+".") { // a temporary file of the marker
			return model.Errorf(model.CodeInvalidConf, "choose an empty or new directory with --dir",
				"state directory %s belongs to something else: it contains %q and no %s", d, e.Name(), markerName)
		}
	}
	return nil
}
