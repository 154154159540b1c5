// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// TestPodsDoNotDelayTheirNode: a pod that changes things without end is looked at the less often the longer it does so;
// what is changed of it on the node is looked at within a second all the same, and the other way round. So is what a
// program on the node removes of the attachment, however often it changes other things, or puts back what it removes.
func TestPodsDoNotDelayTheirNode(t *testing.T) {
	key := model.AttachmentKey{ContainerID: "c"}
	for _, c := range []struct {
		restless, other cause
		times           int // how often the other one is looked at
	}{
		{changeInPod, changeOnNode, 1},
		{changeOnNode, changeInPod, 1},
		{changeInPod, lossOnNode, 12},
		{changeOnNode, lossOnNode, 12},
	} {
		q, now := newRepairQueue(), time.Unix(1e9, 0)
		check := func(by cause) (after time.Duration) {
			t.Helper()
			q.add(now, by, key)
			_, _, is, wait := q.take(now)
			if is {
				t.Fatal("a look without any wait")
			}
			now = now.Add(wait)
			_, set, is, _ := q.take(now)
			if !is || !set[by] {
				t.Fatalf("nothing is due after %s, or not because of %v: %v", wait, by, set)
			}
			q.finished(key, set, false, true, nil, now)
			return wait
		}
		var last time.Duration
		for range 12 {
			last = check(c.restless)
		}
		if last != maxGap {
			t.Errorf("after 12 changes for nothing a look waits for %s, want %s", last, maxGap)
		}
		for range c.times {
			if after := check(c.other); after > time.Second {
				t.Errorf("what another one changes is looked at after %s", after)
			}
		}
		if after := check(c.restless); after <= time.Second {
			t.Errorf("the restless one is looked at after %s again", after)
		}
	}
}

// TestEarliestCheckCounts: of two changes the sooner look counts, for both; one that fails is tried again for the same
// reason.
func TestEarliestCheckCounts(t *testing.T) {
	q, now, key := newRepairQueue(), time.Unix(1e9, 0), model.AttachmentKey{ContainerID: "c"}
	q.backoffs[key] = backoff{last: now, gap: [causes]time.Duration{changeInPod: maxGap}}
	q.add(now, changeInPod, key)
	q.add(now, changeOnNode, key)
	_, _, _, wait := q.take(now)
	if wait != minGap {
		t.Errorf("the look waits for %s, want %s", wait, minGap)
	}
	now = now.Add(wait)
	_, by, is, _ := q.take(now)
	if !is || by != (causeSet{changeOnNode: true, changeInPod: true}) {
		t.Errorf("due %v because of %v, want both", is, by)
	}
	if !q.finished(key, by, false, true, errors.New("not now"), now) {
		t.Error("a new error is none")
	}
	now = now.Add(repairRetry)
	if _, again, is, _ := q.take(now); !is || again != by {
		t.Errorf("due %v because of %v, want as before", is, again)
	}
}
