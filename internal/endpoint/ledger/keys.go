// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/weft-net/weft/internal/model"
)

// Keys returns the attachments of a container, by network and interface. Only keys are read, no records.
func (l *Records) Keys(containerID string) ([]model.AttachmentKey, error) {
	var keys []model.AttachmentKey
	prefix := []byte(containerID + "\x00")
	err := l.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte(l.bucket)).Cursor()
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			network, ifName, ok := bytes.Cut(k[len(prefix):], []byte{0})
			if ok {
				keys = append(keys, model.AttachmentKey{Network: string(network), ContainerID: containerID, IfName: string(ifName)})
			}
		}
		return nil
	})
	return keys, l.wrap(err)
}

// Len returns the number of attachments.
func (l *Records) Len() (int, error) {
	n := 0
	err := l.db.View(func(tx *bbolt.Tx) error {
		n = tx.Bucket([]byte(l.bucket)).Stats().KeyN
		return nil
	})
	return n, l.wrap(err)
}
