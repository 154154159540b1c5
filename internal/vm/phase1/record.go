// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/flock"
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

// version is the form of a record; one of a later form is refused, and left alone.
const version = 1

// Record is what is remembered of a machine in a pod.
type Record struct {
	Version int `json:"version"`
	// Machine is the machine's key, In the pod that it is in.
	Machine string `json:"machine"`
	In      string `json:"in"`
	// Boot is the boot of the node in which it was written.
	Boot string `json:"boot,omitempty"`
	// Netns is where the pod's namespace could be opened, Namespace that one's name among all, and Container the pod's
	// sandbox where an agent attached it.
	Netns     string `json:"netns,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Container string `json:"container,omitempty"`
	// Owner is the user and group that the hypervisor runs as.
	Owner uint32 `json:"owner,omitempty"`
	// Path is where its manifest has the instance's specification.
	Path string `json:"path"`
	// Pod is what all networks need of the pod.
	Pod      plan.Step `json:"pod"`
	Networks []Network `json:"networks"`
	// Vhost is the device that the machine's user was given.
	Vhost *Given `json:"vhost,omitempty"`

	exists bool
}

// Network is a network with its state.
type Network struct {
	State State `json:"state"`
	plan.Network
	// Tap is the macvtap's device that the machine's user was given.
	Tap *Given `json:"tap,omitempty"`
}

func (r *Record) find(name string) int {
	return slices.IndexFunc(r.Networks, func(n Network) bool { return n.Interface.Name == name })
}

// linked tells whether the carriers of its networks are those of others.
func (r *Record) linked(others []Network) bool {
	return slices.EqualFunc(r.Networks, others, func(a, b Network) bool { return a.Device.Down == b.Device.Down })
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

// path is the file of a machine in a pod. A machine's key is two names of Kubernetes', which have no commas.
func (c Config) path(key, pod string) string { return c.stem(key) + "," + word(pod) + ".json" }

func (c Config) stem(key string) string {
	return filepath.Join(c.Dir, strings.ReplaceAll(key, "/", ","))
}

// word is a pod's name as it can be in that of a file.
func word(pod string) string {
	const most = 64
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
	}
	if len(pod) <= most && !strings.ContainsFunc(pod, func(r rune) bool { return !plain(r) }) {
		return pod
	}
	sum := sha256.Sum256([]byte(pod))
	return hex.EncodeToString(sum[:])
}

// Read tells what is remembered of a machine in a pod; without a pod, in the only one that it is in.
func (c Config) Read(key, pod string) (r Record, found bool, err error) {
	if pod != "" {
		return c.read(c.path(key, pod))
	}
	all, err := c.List()
	for _, one := range all {
		if one.Machine != key {
			continue
		}
		if found {
			return Record{}, false, model.Faultf(model.CodeInvalidEnv, "say which of them is meant",
				"machine %s is in the pods %s and %s", key, r.In, one.In)
		}
		r, found = one, true
	}
	return r, found, err
}

// List tells what is remembered of all machines of this boot; the error joins what is wrong with others.
func (c Config) List() ([]Record, error) {
	files, err := c.files()
	errs := []error{err}
	var out []Record
	for _, path := range files {
		r, found, err := c.read(path)
		if errs = append(errs, err); found && err == nil {
			out = append(out, r)
		}
	}
	return out, errors.Join(errs...)
}

func (c Config) files() ([]string, error) { return filepath.Glob(filepath.Join(c.Dir, "*.json")) }

// read reads a file. One of another boot is void: what it tells of went with that.
func (c Config) read(path string) (r Record, found bool, err error) {
	what := "record " + path
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("%s: %w", what, err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, false, fmt.Errorf("%s: %w", what, err)
	}
	if r.Version > version {
		return Record{}, false, model.Faultf(model.CodeIO, "it was written by a later weft",
			"record of machine %s: %s has version %d, %d is known",
			r.Machine, path, r.Version, version)
	}
	r.exists = true
	return r, r.Boot == c.Boot, nil
}

// open begins with what is remembered of a machine in this pod.
func (c Config) open(s kernel.Spaces, key, pod string) (*work, error) {
	r, found, err := c.Read(key, pod)
	if err != nil {
		return nil, err
	}
	if !found {
		r = Record{Version: version, Machine: key, In: pod, Boot: c.Boot}
	}
	return &work{Config: c, spaces: s, record: r}, nil
}

// save writes the record, which is then whole whenever this process is killed.
func (w *work) save(why string) error {
	if err := w.Step.At(why); err != nil {
		return err
	}
	b, err := json.Marshal(w.record)
	if err != nil {
		return fmt.Errorf("record of machine %s: %w", w.record.Machine, err)
	}
	if err := atomicfile.Write(w.path(w.record.Machine, w.record.In), b, 0o600, atomicfile.CrashSafe); err != nil {
		return model.Faultf(model.CodeIO, "the directory must be writable and have room", "record of machine %s: %w",
			w.record.Machine, err)
	}
	w.record.exists = true
	return nil
}

func (w *work) forget() error {
	if err := w.Step.At("forget"); err != nil {
		return err
	}
	if err := os.Remove(w.path(w.record.Machine, w.record.In)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of machine %s: %w", w.record.Machine, err)
	}
	w.record.exists = false
	return nil
}

// lock keeps other calls for the machine away. The file goes with the record.
func (c Config) lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, model.Faultf(model.CodeIO, "", "records of machines: %w", err)
	}
	path := c.stem(key) + ".lock"
	f, err := flock.Open(ctx, path, flock.Exclusive, 0o600)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, model.Faultf(model.CodeTryAgain, "another call for it is under way", "machine %s: %w", key, ctx.Err())
	}
	if err != nil {
		return nil, model.Faultf(model.CodeIO, "", "records of machines: %w", err)
	}
	c.tidy(key)
	return func() {
		if left, err := filepath.Glob(c.stem(key) + ",*"); err == nil && len(left) == 0 {
			_ = os.Remove(path)
		}
		_ = f.Close()
	}, nil
}

// tidy takes away what calls for the machine left that were killed while they wrote, and what is of another boot.
func (c Config) tidy(key string) {
	_ = atomicfile.Sweep(c.Dir) // it is tried again by the next call
	files, _ := filepath.Glob(c.stem(key) + ",*.json")
	for _, path := range files {
		if r, found, err := c.read(path); err == nil && !found && r.exists {
			_ = os.Remove(path)
		}
	}
}
