// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// statusSince is the version that introduced STATUS and GC.
const statusSince = "1.1.0"

func statusChecks() []itemCheck {
	return []itemCheck{
		{item: 41, since: statusSince, run: statusSucceeds},
		{item: 43, since: statusSince, run: statusFails, notApplicable: func(s *subject) string {
			if s.exhaust == nil {
				return "it needs no resource that could be missing or exhausted"
			}
			return ""
		}},
	}
}

// statusSucceeds checks that STATUS succeeds before the first ADD and changes nothing.
func statusSucceeds(w *world) verdict {
	before, err := takeSnapshot(w.ctx, w.host)
	if err != nil {
		return aborted(err)
	}
	files := w.files()
	if err := w.status(); err != nil {
		return fail("%v", err)
	}
	after, err := takeSnapshot(w.ctx, w.host)
	if err != nil {
		return aborted(err)
	}
	left := diff(before, after)
	for _, f := range w.files() {
		if !slices.Contains(files, f) {
			left = append(left, "left: file "+f)
		}
	}
	if len(left) > 0 {
		return fail("STATUS changes state: %s", summary(left))
	}
	if _, err := w.addPod(); err != nil {
		return fail("STATUS succeeds, but %v", err)
	}
	return pass()
}

// files returns the files in the world's data directory.
func (w *world) files() []string {
	var out []string
	_ = filepath.WalkDir(w.data(), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return nil
	})
	return out
}

func statusFails(w *world) verdict {
	err := w.sub.exhaust(w)
	if errors.Is(err, errInexhaustible) {
		return notApplied("%v", err)
	}
	if err != nil {
		return aborted(err)
	}
	a := w.execute(w.request(status, nil))
	if !a.failed() {
		return fail("a resource is missing or exhausted: %s", a)
	}
	if c := a.code(); c != 50 && c != 51 && c < 100 {
		return fail("want code 50, 51 or a plugin-specific one: %s", a)
	}
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	if a := w.execute(w.request(add, p)); !a.failed() || a.cniError() == nil {
		return fail("after a failed STATUS, ADD does not fail with an error object: %s", a)
	}
	return passUnless(w.del(p))
}
