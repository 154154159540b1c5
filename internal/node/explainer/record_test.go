// SPDX-License-Identifier: Apache-2.0

package explainer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/plan/explain"
)

// The newest answers are kept, each once, up to the limit.
func TestRecorder(t *testing.T) {
	var r recorder
	if got := r.answers(); len(got) != 0 {
		t.Errorf("kept without questions: %v", got)
	}
	question := func(i int) explain.Question { return explain.Question{Node: "n", Link: fmt.Sprint(i)} }
	large := strings.Repeat("x", 100_000)
	for i := range 100 {
		for range 2 {
			r.add(explain.Answers{question(i): {Value: large}}, fmt.Sprint(i))
		}
	}
	got := r.answers()
	if len(got) < 35 || len(got) > 41 || r.size > recordLimit || r.order.Len() != len(got) {
		t.Errorf("%d answers of %d bytes, %d in order", len(got), r.size, r.order.Len())
	}
	if _, kept := got[question(99)]; !kept {
		t.Error("the newest is not kept")
	}
	if _, kept := got[question(0)]; kept {
		t.Error("the oldest is kept")
	}
	if got := got[question(99)].Time; got != "99" {
		t.Errorf("time %s", got)
	}
	r.add(explain.Answers{question(99): {Value: "changed"}}, "200")
	if got := r.answers()[question(99)]; got.Value != "changed" || got.Time != "200" {
		t.Errorf("the answer is %.10q of %s", got.Value, got.Time)
	}
}
