// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// most is the number of records that are kept decoded, more than a node usually has. With those of 100 pods the agent's
// memory is the same as without.
const most = 256

// kept has decoded records in memory: decoding one is a quarter of the agent's work for a DEL. The file stays the truth:
// a kept record is used only for exactly the text that it was encoded to or decoded from. Callers share a kept record,
// so they do not change what it refers to. Its zero value is empty; nil keeps nothing.
type kept struct {
	seed maphash.Seed

	mu sync.Mutex
	of map[model.AttachmentKey]keptRecord
}

type keptRecord struct {
	rec attach.Record
	sum uint64 // of its text
}

func newKept() *kept {
	return &kept{seed: maphash.MakeSeed(), of: map[model.AttachmentKey]keptRecord{}}
}

// get returns the record that was kept for a text.
func (k *kept) get(key model.AttachmentKey, text []byte) (attach.Record, bool) {
	if k == nil {
		return attach.Record{}, false
	}
	k.mu.Lock()
	r, found := k.of[key]
	k.mu.Unlock()
	if !found || r.sum != maphash.Bytes(k.seed, text) {
		return attach.Record{}, false
	}
	return r.rec, true
}

// put keeps a record, unless its ADD has not finished: that changes it until then.
func (k *kept) put(rec attach.Record, text []byte) {
	if k == nil || rec.Stage == attach.Pending {
		return
	}
	rec.Version = attach.RecordVersion
	rec.Acts = slices.Clip(rec.Acts) // who appends to them does so in a slice of its own
	sum := maphash.Bytes(k.seed, text)
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, found := k.of[rec.Key()]; !found && len(k.of) >= most {
		for other := range k.of {
			delete(k.of, other)
			break
		}
	}
	k.of[rec.Key()] = keptRecord{rec, sum}
}

func (k *kept) drop(key model.AttachmentKey) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, key)
}
