// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"slices"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/model"
)

// notifyingStore notifies listeners of each successful change of a record.
type notifyingStore struct {
	store     RecordStore
	fail      failpoint.Hook
	written   []func(Record)
	forgotten []func(model.AttachmentKey)
}

func (s *notifyingStore) get(k model.AttachmentKey) (Record, bool, error) { return s.store.Get(k) }

// list returns all readable records; the error joins those of the unreadable ones.
func (s *notifyingStore) list() ([]Record, error) { return s.store.List() }

// put writes records of one container and one stage.
func (s *notifyingStore) put(records ...Record) error {
	if err := s.store.Put(records...); err != nil {
		return err
	}
	s.notify(records)
	return nil
}

// setStage writes records of one container in another stage; nothing else of them has changed since they were written.
func (s *notifyingStore) setStage(stage Stage, records ...Record) error {
	if err := s.store.SetStage(stage, records...); err != nil {
		return err
	}
	records = slices.Clone(records)
	for i := range records {
		records[i].Stage = stage
	}
	s.notify(records)
	return nil
}

func (s *notifyingStore) notify(records []Record) {
	for _, r := range records {
		for _, notify := range s.written {
			notify(r)
		}
	}
}

// forget removes a record.
func (s *notifyingStore) forget(k model.AttachmentKey) error {
	if err := s.fail.At("before forget"); err != nil {
		return err
	}
	if err := s.store.Delete(k); err != nil {
		return err
	}
	for _, notify := range s.forgotten {
		notify(k)
	}
	return nil
}
