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
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Dir is a lab's state directory, an absolute path.
type Dir string

const (
	markerName = "lab.json"
	lockName   = "lock"
	// longestSocket is the longest socket path below a state directory; the kernel allows 107 bytes in all.
	longestSocket = len("/nodes/node200/sandbox/sandbox.sock")
)

// At makes a Dir of a path as a user writes it.
func At(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		// A lab reached through a link is the lab behind it.
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			abs = real
		}
	}
	if err != nil {
		return "", fmt.Errorf("state directory %q: %w", path, err)
	}
	if len(abs)+longestSocket > 107 {
		return "", model.Faultf(model.CodeInvalidConf, fmt.Sprintf("choose a path of at most %d bytes", 107-longestSocket),
			"state directory %q is too long for the sockets in it", abs)
	}
	return Dir(abs), nil
}

func (d Dir) at(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// NS is where the namespace of a node is bound.
func (d Dir) NS(node string) string { return d.at("ns", node) }

// Store is the directory of the cluster's manifests.
func (d Dir) Store() string { return d.at("store") }

// Bin is the CNI binary directory.
func (d Dir) Bin() string { return d.at("bin") }

// Node is a path below a node's directory.
func (d Dir) Node(node string, elem ...string) string {
	return d.at(append([]string{"nodes", node}, elem...)...)
}

// Marker says whose directory it is.
type Marker struct {
	Version int    `json:"weftLab"`
	Phase   string `json:"phase"` // starting, up, going
	Layout  Layout `json:"layout"`
}

const markerVersion = 1

// The phases of a lab.
const (
	phaseStarting = "starting"
	phaseUp       = "up"
)

// read reads the marker. It is os.ErrNotExist when there is no lab.
func (d Dir) read() (Marker, error) {
	var m Marker
	b, err := os.ReadFile(d.at(markerName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Version == 0 {
		return m, model.Faultf(model.CodeDecode, "choose another --dir, or remove the directory yourself",
			"state directory %s: %s is no lab's marker", d, markerName)
	}
	if m.Version > markerVersion {
		return m, model.Faultf(model.CodeDecode, "use the weft that made it",
			"state directory %s was made by a newer weft (version %d)", d, m.Version)
	}
	return m, nil
}

func (d Dir) write(m Marker) error {
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
	return model.Faultf(model.CodeInvalidConf, "make one with `weft lab up`, or name its directory with --dir",
		"no lab in %s", d)
}

// lock takes the lock of the state directory, which must exist; another holder is given a moment to end.
func (d Dir) lock(ctx context.Context) (unlock func(), err error) {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	f, err := flock.Open(limited, d.at(lockName), flock.Exclusive, 0o644)
	switch {
	case err == nil:
		return func() { _ = f.Close() }, nil
	case limited.Err() != nil && errors.Is(err, limited.Err()):
		return nil, model.Faultf(model.CodeTryAgain, "wait for it, or stop it",
			"another weft command is at work on the lab in %s", d)
	}
	return nil, d.unwritable(err)
}

func (d Dir) unwritable(err error) error {
	return model.Faultf(model.CodeIO, "run as root, or choose another with --dir",
		"state directory %s cannot be written: %w", d, plain(err))
}

// plain takes the path out of a file error whose message names it already.
func plain(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// claim makes d this lab's, or says whose it is. It returns what was in it: the marker of an earlier lab, if any.
func (d Dir) claim(ctx context.Context) (unlock func(), old *Marker, err error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, nil, d.unwritable(err)
	}
	if err := d.foreign(); err != nil {
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

// foreign tells whether the directory holds something and is no lab's: nothing in it must ever be touched.
func (d Dir) foreign() error {
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
		if e.Name() != lockName && !strings.HasPrefix(e.Name(), "."+markerName+".") { // a marker in the making
			return model.Faultf(model.CodeInvalidConf, "choose an empty or new directory with --dir",
				"state directory %s belongs to something else: it holds %q and no %s", d, e.Name(), markerName)
		}
	}
	return nil
}
