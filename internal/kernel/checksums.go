// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"github.com/weft-net/weft/internal/netns"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// checksums set whether the device computes the checksums of sent packets (offload), or the kernel. It is a setting of
// ethtool's, which no link message contains.
type checksums struct {
	want  []state.Link
	links *links
	ns    *netns.NS
}

// read reads the setting of the links for which the space has one, and records it with the links.
func (c checksums) read() error {
	var names []string
	for _, l := range c.want {
		if _, ok := c.links.found[l.Name]; ok && l.TxChecksum != nil {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return c.ns.Do(func() error {
		for _, name := range names {
			on, err := link.TxChecksum(name)
			if errors.Is(err, enodev) {
				continue // the link was deleted a moment ago
			}
			if err != nil {
				return err
			}
			have := c.links.found[name]
			have.TxChecksum = &on
			c.links.found[name] = have
		}
		return nil
	})
}

// write sets the offload where it differs.
func (c checksums) write() error {
	var wrong []state.Link
	for _, l := range c.want {
		if differs(l.TxChecksum, c.links.found[l.Name].TxChecksum) {
			wrong = append(wrong, l)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return c.ns.Do(func() error {
		var errs []error
		for _, l := range wrong {
			errs = append(errs, link.SetTxChecksum(l.Name, *l.TxChecksum))
		}
		return errors.Join(errs...)
	})
}
