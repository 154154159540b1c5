// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// write writes the file element by element: as one value a large cluster's status would be in memory again, twice.
func (s Status) write(path string) error {
	s.Topology = s.Topology.Whole()
	peers, fragments := s.Topology.Peers, s.Fragments
	s.Topology.Peers, s.Fragments = nil, nil
	head, err := json.Marshal(s)
	if err != nil {
		return err
	}
	// In a text the quotation marks would be escaped.
	before, rest, _ := bytes.Cut(head, []byte(`"peers":null`))
	between, after, ok := bytes.Cut(rest, []byte(`"fragments":null`))
	if !ok {
		return fmt.Errorf("status: unexpected keys in %s", head)
	}
	return atomicfile.WriteFrom(path, func(file io.Writer) error {
		w := bufio.NewWriter(file)
		err := errors.Join(
			written(w, before), writeArray(w, "peers", peers), written(w, between), writeArray(w, "fragments", fragments),
			written(w, append(after, '\n')),
		)
		return errors.Join(err, w.Flush())
	}, 0o644, atomicfile.CrashSafe)
}

func written(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// writeArray writes a key and an array.
func writeArray[T any](w io.Writer, key string, all []T) error {
	if all == nil {
		return written(w, []byte(`"`+key+`":null`))
	}
	if err := written(w, []byte(`"`+key+`":[`)); err != nil {
		return err
	}
	for i := range all {
		b, err := json.Marshal(all[i])
		if err != nil {
			return err
		}
		if i > 0 {
			err = written(w, []byte{','})
		}
		if err = errors.Join(err, written(w, b)); err != nil {
			return err
		}
	}
	return written(w, []byte{']'})
}
