// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// outlived returns those connections whose timeout in the kernel is shorter than the given one.
func (t conn) outlived(all []state.ConntrackEntry) ([]state.ConntrackEntry, error) {
	type way struct {
		proto    uint8
		from, to netip.AddrPort
	}
	var out []state.ConntrackEntry
	for some := range slices.Chunk(all, maxMessages/2) { // two answers each
		var b request
		wanted := map[way]state.ConntrackEntry{}
		for _, c := range some {
			wanted[way{c.Proto, c.Src, c.Dst}] = c
			b.begin(ctGet, unix.NLM_F_ACK, familyOfTracked(c))
			b.nest(ctTupleOrig, func() { b.tuple(c.Proto, c.Src, c.Dst) })
		}
		var errs error
		err := t.ask(&b, func(body []byte, errno unix.Errno) {
			if errno != 0 && errno != unix.ENOENT { // it has expired meanwhile
				errs = errors.Join(errs, fmt.Errorf("conntrack: get: %w", errno))
			}
			have, ok := parseTracked(body)
			if c, is := wanted[way{have.Proto, have.Src, have.Dst}]; ok && is && have.Timeout < c.Timeout {
				out = append(out, c)
			}
		})
		if err = errors.Join(err, errs); err != nil {
			return nil, err
		}
	}
	return out, nil
}
