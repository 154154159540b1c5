// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

const enodev = unix.ENODEV

// RemoveShared takes the shared links and tables that f names, as far as nothing uses them any more: a bridge that weft
// made and that has no port, a table without elements. Addresses go with their link; shared sysctls stay.
func (s Spaces) RemoveShared(ctx context.Context, f state.Fragment) error {
	v, err := look(ctx, state.Host, s.Host, f.Host)
	if err != nil {
		return err
	}
	var errs []error
	if len(v.want.Tables) > 0 {
		n, err := v.conn.tables()
		if err != nil {
			return in(v.name, err)
		}
		if err := n.RemoveShared(ctx, v.want.Tables); err != nil {
			errs = append(errs, in(v.name, fmt.Errorf("nft: %w", err)))
		}
	}
	var unused []link.Found
	for _, l := range v.want.Links {
		have, ok := v.links[l.Name]
		if !ok || !l.Shared || l.Kind == "" || have.Kind != l.Kind || !weftMade(l, have) {
			continue
		}
		delete(v.links, l.Name) // named twice, taken once
		ports, err := v.conn.links(ctx, have.Index)
		if err != nil {
			errs = append(errs, in(v.name, err))
		} else if len(ports) == 0 {
			unused = append(unused, have)
		}
	}
	return errors.Join(append(errs, in(v.name, v.delete(ctx, unused)))...)
}
