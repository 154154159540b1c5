// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// readySince is the version that STATUS and GC came with.
const readySince = "1.1.0"

func statusChecks() []judgment {
	return []judgment{
		{item: 41, since: readySince, run: ready},
		{item: 43, since: readySince, run: exhausted, without: func(s *subject) string {
			if s.exhaust == nil {
				return "it needs nothing that could be missing or exhausted"
			}
			return ""
		}},
	}
}

// ready wants a STATUS that succeeds, before the first ADD, and leaves nothing behind.
func ready(w *world) verdict {
	before, err := look(w.ctx, w.host)
	if err != nil {
		return broken(err)
	}
	files := w.files()
	if err := w.status(); err != nil {
		return fail("%v", err)
	}
	after, err := look(w.ctx, w.host)
	if err != nil {
		return broken(err)
	}
	left := changes(before, after)
	for _, f := range w.files() {
		if !slices.Contains(files, f) {
			left = append(left, "left: file "+f)
		}
	}
	if len(left) > 0 {
		return fail("STATUS is no question only: %s", summary(left))
	}
	if _, err := w.attached(); err != nil {
		return fail("STATUS succeeds, but %v", err)
	}
	return pass()
}

// files are what plugins have put into the world's directory.
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

func exhausted(w *world) verdict {
	err := w.sub.exhaust(w)
	if errors.Is(err, errNothingToExhaust) {
		return notApplied("%v", err)
	}
	if err != nil {
		return broken(err)
	}
	a := w.do(w.request(status, nil))
	if !a.refused() {
		return fail("what an ADD needs is missing or exhausted: %s", a)
	}
	if c := a.code(); c != 50 && c != 51 && c < 100 {
		return fail("code 50, 51 or one of its own is wanted: %s", a)
	}
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	if a := w.do(w.request(add, p)); !a.refused() || a.fault() == nil {
		return fail("after a STATUS that failed, ADD is not refused properly: %s", a)
	}
	return wanted(w.del(p))
}
