// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/model"
)

// recordStore keeps the records, and has those know of each change who go by them.
type recordStore struct {
	memory    Memory
	fail      failpoint.Hook
	written   []func(Record)
	forgotten []func(model.AttachmentKey)
}

func (s *recordStore) get(k model.AttachmentKey) (Record, bool, error) { return s.memory.Get(k) }

// list returns all records that can be read; the error joins what is wrong with the others.
func (s *recordStore) list() ([]Record, error) { return s.memory.List() }

// put writes records of one container, of one stage.
func (s *recordStore) put(records ...Record) error {
	if err := s.memory.Put(records...); err != nil {
		return err
	}
	for _, r := range records {
		for _, tell := range s.written {
			tell(r)
		}
	}
	return nil
}

// forget removes a record.
func (s *recordStore) forget(k model.AttachmentKey) error {
	if err := s.fail.At("before forget"); err != nil {
		return err
	}
	if err := s.memory.Delete(k); err != nil {
		return err
	}
	for _, tell := range s.forgotten {
		tell(k)
	}
	return nil
}
