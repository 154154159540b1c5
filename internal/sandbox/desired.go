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

// desired is a pod that shall run, or shall end.
type desired struct {
	Pod *v1.Pod `json:"pod"`
	// Source is the manifest's file in the pods directory; empty for pods that came over the socket.
	Source  string    `json:"source,omitempty"`
	Added   time.Time `json:"added"`
	Deleted *deletion `json:"deleted,omitempty"`
}

// deletion says how a pod shall end.
type deletion struct {
	At    time.Time     `json:"at"`
	Grace time.Duration `json:"grace"`
	// Force: networks that cannot be given back are given up.
	Force bool `json:"force,omitempty"`
}

// shelf keeps what is desired on disk, one file per pod, so that a killed server goes on where it was.
type shelf struct{ dir string }

func (s shelf) put(d desired) error {
	if err := process.WriteJSON(filepath.Join(s.dir, string(d.Pod.UID)+".json"), d); err != nil {
		return fmt.Errorf("pod %s/%s: %w", d.Pod.Namespace, d.Pod.Name, err)
	}
	return nil
}

func (s shelf) remove(uid string) error {
	if err := os.Remove(filepath.Join(s.dir, uid+".json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pod %s: %w", uid, err)
	}
	return nil
}

// list reads all; files that cannot be read are named in the error, the others are returned nevertheless.
func (s shelf) list() ([]desired, error) {
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
			_ = os.Remove(path) // in the making when its writer was killed
			continue
		}
		var d desired
		err := process.ReadJSON(path, &d)
		if err == nil && (d.Pod == nil || string(d.Pod.UID)+".json" != e.Name()) {
			err = fmt.Errorf("read %s: it is about another pod", path)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, d)
	}
	return out, errors.Join(errs...)
}
