// SPDX-License-Identifier: Apache-2.0

package explainer

import (
	"container/list"
	"encoding/json"
	"sync"

	"github.com/weft-net/weft/internal/plan/explain"
)

// recordLimit is the size in bytes of the answers that are kept, with their questions, as JSON.
const recordLimit = 4 << 20

// recorder keeps the last answers, so that a support bundle has them: what an explanation was made of can be read again
// elsewhere. Without questions it keeps nothing.
type recorder struct {
	mu    sync.Mutex
	order list.List // of recorded, the oldest first
	kept  map[explain.Question]*list.Element
	size  int
}

type recorded struct {
	question explain.Question
	answer   explain.Answer
	size     int
}

// add keeps answers with their time, and drops the oldest ones beyond the limit.
func (r *recorder) add(answers explain.Answers, now string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil {
		r.kept = map[explain.Question]*list.Element{}
	}
	for q, a := range answers {
		a.Time = now
		encoded, err := json.Marshal(explain.Answers{q: a})
		if err != nil {
			continue // it could not be sent either
		}
		if old, kept := r.kept[q]; kept {
			r.drop(old)
		}
		r.kept[q] = r.order.PushBack(recorded{q, a, len(encoded)})
		r.size += len(encoded)
	}
	for r.size > recordLimit {
		r.drop(r.order.Front())
	}
}

// drop forgets an answer.
func (r *recorder) drop(e *list.Element) {
	old := r.order.Remove(e).(recorded)
	delete(r.kept, old.question)
	r.size -= old.size
}

func (r *recorder) answers() explain.Answers {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(explain.Answers, len(r.kept))
	for e := r.order.Front(); e != nil; e = e.Next() {
		one := e.Value.(recorded)
		out[one.question] = one.answer
	}
	return out
}
