// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// readChecksums asks for who computes checksums, of those links of which the space says it.
func (v *view) readChecksums() error {
	var names []string
	for _, l := range v.want.Links {
		if _, ok := v.links[l.Name]; ok && l.TxChecksum != nil {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return v.conn.ns.Do(func() error {
		for _, name := range names {
			on, err := link.TxChecksum(name)
			if errors.Is(err, enodev) {
				continue // it went a moment ago
			}
			if err != nil {
				return err
			}
			have := v.links[name]
			have.TxChecksum = &on
			v.links[name] = have
		}
		return nil
	})
}

// writeChecksums says who computes them from now on.
func (v *view) writeChecksums() error {
	var wrong []state.Link
	for _, l := range v.want.Links {
		if differs(l.TxChecksum, v.links[l.Name].TxChecksum) {
			wrong = append(wrong, l)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return v.conn.ns.Do(func() error {
		var errs []error
		for _, l := range wrong {
			errs = append(errs, link.SetTxChecksum(l.Name, *l.TxChecksum))
		}
		return errors.Join(errs...)
	})
}
