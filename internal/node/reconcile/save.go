// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"encoding/json"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
)

// file is the state of the status file. In a large cluster it has megabytes: writing takes at most a twentieth of the
// time, and a thousandth if only its time is new.
type file struct {
	changed   bool // there is an unwritten change
	writtenAt time.Time
	cost      time.Duration
}

const (
	// cheap is a duration of a write that is acceptable for each change.
	cheap = 10 * time.Millisecond
	share = 20
	// seldom is the share of refreshing.
	seldom = 1000
)

// unsaved returns the time until the file may be written again; ok is false if there is nothing to write.
func (r *Reconciler) unsaved() (wait time.Duration, ok bool) {
	if r.cfg.StatusFile == "" || !r.file.changed {
		return 0, false
	}
	if r.file.cost < cheap {
		return 0, true
	}
	return max(0, share*r.file.cost-r.cfg.Now().Sub(r.file.writtenAt)), true
}

// save writes the file if that is due.
func (r *Reconciler) save() {
	if wait, ok := r.unsaved(); ok && wait == 0 {
		r.write()
	}
}

// write replaces the file.
func (r *Reconciler) write() {
	begin := r.cfg.Now()
	err := r.Status().write(r.cfg.StatusFile)
	r.file = file{writtenAt: r.cfg.Now(), cost: r.cfg.Now().Sub(begin), changed: err != nil}
	if err != nil {
		r.cfg.Log.Error("status file could not be written", "err", err)
	}
}

func (s Status) write(path string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(b, '\n'), 0o644, atomicfile.CrashSafe)
}
