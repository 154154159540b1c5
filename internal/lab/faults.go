// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/lab/cut"
	"github.com/weft-net/weft/internal/lab/layout"
)

// Faults cuts and heals the wires of a lab.
type Faults struct {
	Dir  Dir
	Logf Progress
}

// Cut makes the wires lose the frames of a link, which is [WIRE] [NODE [NODE]]. The cut is recorded before it takes
// effect, so that a second Cut or Undo completes one that was killed.
func (f Faults) Cut(ctx context.Context, args []string, oneWay bool) error {
	return f.change(ctx, func(l layout.Layout, have []cut.Cut) ([]cut.Cut, error) {
		w := l.CutWires()
		link, err := w.Parse(args, oneWay)
		if err != nil {
			return nil, err
		}
		return cut.Add(have, w.Cuts(link)...), nil
	})
}

// Undo undoes cuts: those of a link, or all if args is empty.
func (f Faults) Undo(ctx context.Context, args []string, oneWay bool) error {
	return f.change(ctx, func(l layout.Layout, have []cut.Cut) ([]cut.Cut, error) {
		if len(args) == 0 {
			return nil, nil
		}
		w := l.CutWires()
		link, err := w.Parse(args, oneWay)
		if err != nil {
			return nil, err
		}
		return cut.Remove(have, w.Cuts(link)...)
	})
}

func (f Faults) change(ctx context.Context, next func(layout.Layout, []cut.Cut) ([]cut.Cut, error)) error {
	unlock, m, err := f.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	had := m.Cuts
	if m.Cuts, err = next(m.Layout, had); err != nil {
		return err
	}
	if err := f.Dir.Write(m); err != nil {
		return f.Dir.unwritable(err)
	}
	if err := f.Dir.ApplyCuts(ctx, m); err != nil {
		return err
	}
	f.report(had, m.Cuts)
	return nil
}

// report reports what has changed, and what is cut now.
func (f Faults) report(had, have []cut.Cut) {
	changed := slices.Equal(had, have)
	for _, c := range have {
		if !slices.Contains(had, c) {
			f.Logf("cut: %s", c)
		}
	}
	for _, c := range had {
		if !slices.Contains(have, c) && !slices.ContainsFunc(have, func(d cut.Cut) bool { return d.Covers(c) }) {
			f.Logf("healed: %s", c)
		}
	}
	if changed {
		f.Logf("nothing to change; %s", cutNames(have))
	}
}

func cutNames(all []cut.Cut) string {
	if len(all) == 0 {
		return "no wire is cut"
	}
	var out []string
	for _, c := range all {
		out = append(out, c.String())
	}
	return "cut: " + strings.Join(out, ", ")
}

// LockUp locks a lab that is up, and reads its marker.
func (d Dir) LockUp(ctx context.Context) (unlock func(), m Marker, err error) {
	if _, err = d.Open(); err != nil {
		return nil, m, err
	}
	if unlock, err = d.lock(ctx); err != nil {
		return nil, m, err
	}
	if m, err = d.Open(); err == nil && m.Phase != phaseUp {
		err = notUp(d, m.Phase)
	}
	if err != nil {
		unlock()
		return nil, m, err
	}
	return unlock, m, nil
}

// ApplyCuts makes the wires lose what the marker names, and nothing else.
func (d Dir) ApplyCuts(ctx context.Context, m Marker) error {
	return d.Net().Do(func(s kernel.Spaces) error { return s.Apply(ctx, m.Layout.Cuts(m.Cuts)) })
}

// cutProblem returns how the wires differ from the cuts of the marker, or "".
func (d Dir) cutProblem(ctx context.Context, m Marker) string {
	if len(m.Cuts) == 0 {
		return ""
	}
	problem := ""
	err := d.Net().Do(func(s kernel.Spaces) error {
		differences, err := s.Diff(ctx, m.Layout.Cuts(m.Cuts))
		if len(differences) > 0 {
			problem = fmt.Sprintf("cuts are not in effect: repeat `weft lab cut`: %v", differences[0])
		}
		return err
	})
	if err != nil {
		return "cuts: " + err.Error()
	}
	return problem
}
