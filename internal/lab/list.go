// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/lab/teardown"
	"github.com/weft-net/weft/internal/lab/wires"
)

// Listed is a lab of this host. The keys of its JSON form are stable.
type Listed struct {
	Name    string    `json:"name"`
	Dir     string    `json:"dir"`
	Created time.Time `json:"created"`
	Nodes   int       `json:"nodes"`
	// Phase is up, degraded (a process of it is dead), starting or removing while a command works on it, and incomplete if
	// that command was killed.
	Phase string `json:"phase"`
	// Process is one in the mount namespace of the lab's directory, if that is another than this program's.
	Process int `json:"process,omitempty"`
}

// The phases that only a list shows: they follow from the processes and the lock of a lab.
const (
	phaseDegraded   = "degraded"
	phaseIncomplete = "incomplete"
)

// List finds the labs of this host: by the namespaces that are mounted, by the processes, and in the directory of the
// default lab. A directory that cannot be read is an error, which names it, and the others are returned.
func List() ([]Listed, error) {
	found, err := candidates()
	var out []Listed
	errs := []error{err}
	for _, c := range found {
		l, err := c.inspect()
		if errors.Is(err, os.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Dir, b.Dir) })
	return out, errors.Join(errs...)
}

// candidate is a directory that may have a lab, in the root directory of a process, or in this one's.
type candidate struct {
	dir     string
	process int
	info    os.FileInfo
}

func (c candidate) path() string {
	if c.process == 0 {
		return c.dir
	}
	return fmt.Sprintf("/proc/%d/root%s", c.process, c.dir)
}

func (c candidate) inspect() (Listed, error) {
	d := Dir(c.path())
	m, err := d.read()
	if err != nil {
		return Listed{}, err
	}
	l := Listed{
		Name: m.Layout.Spec.Name, Dir: c.dir, Created: m.Created, Nodes: len(m.Layout.Nodes), Phase: m.Phase, Process: c.process,
	}
	if l.Created.IsZero() { // of an older version, which did not write it
		l.Created = c.info.ModTime()
	}
	switch {
	case m.Phase == phaseUp && !d.alive(m.Layout):
		l.Phase = phaseDegraded
	case m.Phase != phaseUp && !d.locked():
		l.Phase = phaseIncomplete
	}
	return l, nil
}

// candidates returns each directory once.
func candidates() ([]candidate, error) {
	var out []candidate
	add := func(c candidate) {
		info, err := os.Stat(c.path())
		if err != nil || slices.ContainsFunc(out, func(o candidate) bool { return os.SameFile(o.info, info) }) {
			return
		}
		c.info = info
		out = append(out, c)
	}
	points, err := teardown.Mounts("/")
	for _, p := range points {
		if dir, ok := strings.CutSuffix(p.Path, "/ns/"+wires.Name); ok && p.Kind == "nsfs" {
			add(candidate{dir: dir})
		}
	}
	markers, _ := filepath.Glob("/run/weft/*/" + markerName)
	for _, m := range markers {
		add(candidate{dir: filepath.Dir(m)})
	}
	processes, globErr := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		b, err := os.ReadFile(p + "/environ")
		if err != nil {
			continue // it ended, or is another user's
		}
		for _, v := range bytes.Split(b, []byte{0}) {
			if dir, ok := strings.CutPrefix(string(v), teardown.Variable+"=/"); ok {
				add(candidate{dir: "/" + dir})
				if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
					add(candidate{dir: "/" + dir, process: pid})
				}
			}
		}
	}
	return out, errors.Join(err, globErr)
}
