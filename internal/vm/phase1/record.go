// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

// State is how far a network is.
type State string

// The states.
const (
	Pending  State = "pending"
	Started  State = "started"
	Finished State = "finished"
	Leaving  State = "leaving"
)

// draft is what the name of a record that is being written ends with.
const draft = ".new"

// version is the form of a record; one of a later form is refused, and left alone.
const version = 1

// Record is what is remembered of a machine in a pod.
type Record struct {
	Version int `json:"version"`
	// Machine is the machine's key, In the pod that it is in.
	Machine string `json:"machine"`
	In      string `json:"in"`
	// Path is where its manifest has the instance's specification.
	Path string `json:"path"`
	// Pod is what all networks need of the pod.
	Pod      plan.Step `json:"pod"`
	Networks []Network `json:"networks"`

	exists bool
}

// Network is a network with its state.
type Network struct {
	State State `json:"state"`
	plan.Network
}

func (r *Record) find(name string) int {
	return slices.IndexFunc(r.Networks, func(n Network) bool { return n.Interface.Name == name })
}

// add adds a plan. What of the pod a network before has set keeps the pre-image that was taken then.
func (r *Record) add(p plan.Plan) {
	r.Pod.Fragment.Owner, r.Pod.Restore.Owner = p.Pod.Fragment.Owner, p.Pod.Restore.Owner
	for _, s := range p.Pod.Fragment.Pod.Sysctls {
		same := func(o state.Sysctl) bool { return o.Name == s.Name }
		if slices.ContainsFunc(r.Pod.Fragment.Pod.Sysctls, same) {
			continue
		}
		r.Pod.Fragment.Pod.Sysctls = append(r.Pod.Fragment.Pod.Sysctls, s)
		if i := slices.IndexFunc(p.Pod.Restore.Pod.Sysctls, same); i >= 0 {
			r.Pod.Restore.Pod.Sysctls = append(r.Pod.Restore.Pod.Sysctls, p.Pod.Restore.Pod.Sysctls[i])
		}
	}
	for _, n := range p.Networks {
		r.Networks = append(r.Networks, Network{State: Pending, Network: n})
	}
}

// path is a machine's file. Its key is two names of Kubernetes', which have no commas.
func (c Config) path(key string) string {
	return filepath.Join(c.Dir, strings.ReplaceAll(key, "/", ",")+".json")
}

// Read tells what is remembered of a machine.
func (c Config) Read(key string) (r Record, found bool, err error) {
	b, err := os.ReadFile(c.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("record of machine %s: %w", key, err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, false, fmt.Errorf("record of machine %s: %s: %w", key, c.path(key), err)
	}
	if r.Version > version {
		return Record{}, false, model.Faultf(model.CodeIO, "it was written by a later weft", "record of machine %s: %s has version %d, %d is known",
			key, c.path(key), r.Version, version)
	}
	r.exists = true
	return r, true, nil
}

// open begins with what is remembered of a machine in this pod.
func (c Config) open(s kernel.Spaces, key, pod string) (*work, error) {
	r, found, err := c.Read(key)
	if err != nil {
		return nil, err
	}
	if !found || r.In != pod { // what was made in another pod went with it
		r = Record{Version: version, Machine: key, In: pod, exists: found}
	}
	return &work{Config: c, spaces: s, record: r}, nil
}

// save writes the record, which is then whole whenever this process is killed.
func (w *work) save(why string) error {
	if err := w.step(why); err != nil {
		return err
	}
	b, err := json.Marshal(w.record)
	if err != nil {
		return fmt.Errorf("record of machine %s: %w", w.record.Machine, err)
	}
	path := w.path(w.record.Machine)
	if err = os.WriteFile(path+draft, b, 0o600); err == nil {
		err = os.Rename(path+draft, path)
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "the directory must be writable and have room", "record of machine %s: %w", w.record.Machine, err)
	}
	w.record.exists = true
	return nil
}

func (w *work) forget() error {
	if err := w.step("forget"); err != nil {
		return err
	}
	if err := os.Remove(w.path(w.record.Machine)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of machine %s: %w", w.record.Machine, err)
	}
	w.record.exists = false
	return nil
}

const lockPause = 10 * time.Millisecond

// lock keeps other calls for the machine away. The file goes with the record.
func (c Config) lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, model.Faultf(model.CodeIO, "", "records of machines: %w", err)
	}
	path := strings.TrimSuffix(c.path(key), ".json") + ".lock"
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, model.Faultf(model.CodeIO, "", "records of machines: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isAt(f, path) {
			_ = os.Remove(c.path(key) + draft) // of a call that was killed while it wrote
			return func() {
				if _, err := os.Stat(c.path(key)); errors.Is(err, fs.ErrNotExist) {
					_ = os.Remove(path)
				}
				_ = f.Close()
			}, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("lock of machine %s: %w", key, err)
		}
		select {
		case <-ctx.Done():
			return nil, model.Faultf(model.CodeTryAgain, "another call for it is under way", "machine %s: %w", key, ctx.Err())
		case <-time.After(lockPause):
		}
	}
}

// isAt tells whether a file is still at its path: who had the lock before may have taken it away.
func isAt(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(have, there)
}
