// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// StatusFile is the name of the status file in an agent's state directory.
const StatusFile = "mesh.json"

// refresh is the age at which an unchanged status file is written again with a new time.
const refresh = time.Minute

// Status is the state of the mesh on a node. Its JSON keys are stable.
type Status struct {
	Self string `json:"self"`
	// Time is when the kernel was last compared with the plan.
	Time     time.Time     `json:"time"`
	Topology mesh.Topology `json:"topology"`
	// Fragments reports for each fragment whether the kernel agrees with it.
	Fragments []FragmentStatus `json:"fragments"`
	// Checksums reports for each VXLAN device whether packets arrive unbroken (whole), or only those whose checksums the
	// kernel has computed (broken); there is no entry before a peer has responded.
	Checksums map[string]string `json:"checksums,omitempty"`
	// Error is why the last pass failed; then the previous topology may still be in force.
	Error string `json:"error,omitempty"`
	// Broken is why the part of the node that all peers need is not in force, nil if it is: no peer can be reached.
	Broken error `json:"-"`
}

// FragmentStatus is the state of one fragment.
type FragmentStatus struct {
	Owner string `json:"owner"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// inForce sets all fragments to OK.
func (s *Status) inForce() {
	t := &s.Topology
	s.Fragments = make([]FragmentStatus, 0, 1+len(t.Peers))
	if !t.Node.Host.Empty() {
		s.Fragments = append(s.Fragments, FragmentStatus{Owner: t.Node.Owner, OK: true})
	}
	for i := range t.Peers { // no copy: a peer is large, and there may be thousands
		if p := t.Peers[i]; p.IsReached() {
			s.Fragments = append(s.Fragments, FragmentStatus{Owner: mesh.OwnerPeer + p.Name, OK: true})
		}
	}
	for _, f := range t.Learned {
		s.Fragments = append(s.Fragments, FragmentStatus{Owner: f.Owner, OK: true})
	}
}

// inForceAfter is inForce after another status in which all fragments were OK: of thousands of peers most are the same.
func (s *Status) inForceAfter(old Status) {
	t, was := &s.Topology, &old.Topology
	begin := len(old.Fragments) - len(was.Peers)
	if len(t.Learned)+len(was.Learned) > 0 || begin < 0 || begin > 1 || t.Node.Host.Empty() != (begin == 0) || was.Node.Host.Empty() != (begin == 0) ||
		slices.ContainsFunc(old.Fragments, func(f FragmentStatus) bool { return !f.OK }) {
		s.inForce() // some peer has no fragment
		return
	}
	from, end := unchanged(was.Peers, t.Peers)
	s.Fragments = append(make([]FragmentStatus, 0, begin+len(t.Peers)), old.Fragments[:begin+from]...)
	for _, p := range t.Peers[from : len(t.Peers)-end] {
		if p.IsReached() {
			s.Fragments = append(s.Fragments, FragmentStatus{Owner: mesh.OwnerPeer + p.Name, OK: true})
		}
	}
	s.Fragments = append(s.Fragments, old.Fragments[len(old.Fragments)-end:]...)
}

// publish logs changes of a status and stores it.
func (r *Reconciler) publish(s Status, err error) {
	s.Time = r.cfg.Now()
	if err != nil {
		s.Error = err.Error()
	}
	old := r.Status()
	if s.Topology.Self == "" { // planning failed: the last plan is in force
		if s.Topology, s.Fragments, s.Broken = old.Topology, old.Fragments, old.Broken; old.Topology.Self == "" {
			s.Broken = err
		}
	}
	if s.Error != "" && s.Error != old.Error {
		r.cfg.Log.Error("mesh could not be reconciled", "err", err)
	}
	if s.Error == "" && old.Error != "" {
		r.cfg.Log.Info("mesh is reconciled again")
	}
	known := map[string]bool{}
	for _, p := range old.Topology.Problems {
		known[p.String()] = true
	}
	for _, p := range s.Topology.Problems {
		if !known[p.String()] {
			r.cfg.Log.Warn("mesh leaves out an object", "problem", p.Message, "hint", p.Hint)
		}
	}
	same := old.Self != "" && sameTopology(old.Topology, s.Topology)
	if !same {
		r.cfg.Log.Info("mesh is reconciled", "peers", len(s.Topology.Peers), "problems", len(s.Topology.Problems))
	}
	same = same && old.Self == s.Self && old.Error == s.Error && maps.Equal(old.Checksums, s.Checksums) &&
		slices.Equal(old.Fragments, s.Fragments)
	fresh := same && s.Time.Sub(old.Time) < max(refresh, seldom*r.file.cost)
	if fresh {
		s.Time = old.Time // of the file
	}
	r.mu.Lock()
	r.status = s // also if it is the same: the planner has this plan, and two of a large cluster are large
	r.mu.Unlock()
	if fresh {
		return
	}
	r.file.changed = true
	r.save()
}

// checkStatusFile checks before any change whether the status can be written.
func (r *Reconciler) checkStatusFile() error {
	if r.cfg.StatusFile == "" {
		return nil
	}
	dir := filepath.Dir(r.cfg.StatusFile)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".mesh-*.tmp"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "make the directory writable or choose another", "state directory %q: %w", dir, err)
	}
	return nil
}

// ReadStatus reads the status file of an agent's state directory.
func ReadStatus(stateDir string) (Status, error) {
	path := filepath.Join(stateDir, StatusFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Status{}, model.Errorf(model.CodeNotAvailable, "set --state-dir to that of an agent with a mesh",
			"%s: no agent has written a mesh status there: %w", path, err)
	}
	if err != nil {
		return Status{}, model.Errorf(model.CodeIO, "run it as the agent's user", "mesh status: %w", err)
	}
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// askTime is how long an agent may take to respond before its file is read instead.
const askTime = 5 * time.Second

// AskStatus requests the status from the agent of a state directory. If no agent responds, or it has made no pass yet,
// the status file is read: the routes of a stopped agent are still in force.
func AskStatus(ctx context.Context, stateDir string) (Status, error) {
	var s Status
	q := adminapi.Request{
		Socket: adminapi.InStateDir(stateDir), Method: http.MethodGet, Path: adminapi.RouteMesh, Timeout: askTime,
		Server: "agent",
	}
	if err := q.Do(ctx, &s); err != nil {
		return ReadStatus(stateDir)
	}
	return s, nil
}
