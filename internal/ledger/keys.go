// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/weft-net/weft/internal/model"
)

// Keys are the attachments of a container. Only names are read, no records.
func (l *Ledger) Keys(containerID string) ([]model.AttachmentKey, error) {
	var keys []model.AttachmentKey
	err := l.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte(bucket)).Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			network, rest, _ := bytes.Cut(k, []byte{0})
			container, ifName, ok := bytes.Cut(rest, []byte{0})
			if ok && string(container) == containerID {
				keys = append(keys, model.AttachmentKey{Network: string(network), ContainerID: containerID, IfName: string(ifName)})
			}
		}
		return nil
	})
	return keys, l.fault(err)
}
