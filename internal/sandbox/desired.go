// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/sandbox/process"
)

// desired is the desired state of a pod.
type desired struct {
	Pod *v1.Pod `json:"pod"`
	// Source is the manifest's file in the pods directory; empty for pods that a client applied.
	Source  string    `json:"source,omitempty"`
	Added   time.Time `json:"added"`
	Deleted *deletion `json:"deleted,omitempty"`
}

// deletion means that the pod is to be terminated.
type deletion struct {
	At    time.Time     `json:"at"`
	Grace time.Duration `json:"grace"`
	// Force removes the pod even if its networks cannot be torn down.
	Force bool `json:"force,omitempty"`
}

// podStore stores the desired state of pods on disk, one file for each pod, so that a restarted server continues.
type podStore struct{ dir string }

func (s podStore) write(d desired) error {
	if err := process.WriteJSON(filepath.Join(s.dir, string(d.Pod.UID)+".json"), d); err != nil {
		return fmt.Errorf("pod %s/%s: %w", d.Pod.Namespace, d.Pod.Name, err)
	}
	return nil
}

func (s podStore) remove(uid string) error {
	if err := os.Remove(filepath.Join(s.dir, uid+".json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pod %s: %w", uid, err)
	}
	return nil
}

// list returns all pods. If some files cannot be read, it returns the others and an error.
func (s podStore) list() ([]desired, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []desired
	var errs []error
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			_ = os.Remove(path) // a temporary file of a killed writer
			continue
		}
		var d desired
		err := process.ReadJSON(path, &d)
		if err == nil && (d.Pod == nil || string(d.Pod.UID)+".json" != e.Name()) {
			err = fmt.Errorf("read %s: the file contains another pod", path)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, d)
	}
	return out, errors.Join(errs...)
}
