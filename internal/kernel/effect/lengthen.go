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

// outlived are those of the connections that the kernel would forget earlier than they say.
func (t tracker) outlived(all []state.Tracked) ([]state.Tracked, error) {
	type way struct {
		proto    uint8
		from, to netip.AddrPort
	}
	var out []state.Tracked
	for some := range slices.Chunk(all, mostMessages/2) { // two answers each
		var b request
		wanted := map[way]state.Tracked{}
		for _, c := range some {
			wanted[way{c.Proto, c.From, c.To}] = c
			b.begin(ctGet, unix.NLM_F_ACK, familyOfTracked(c))
			b.nest(ctTupleOrig, func() { b.tuple(c.Proto, c.From, c.To) })
		}
		var errs error
		err := t.ask(&b, func(body []byte, errno unix.Errno) {
			if errno != 0 && errno != unix.ENOENT { // it has ended meanwhile
				errs = errors.Join(errs, fmt.Errorf("conntrack: get: %w", errno))
			}
			have, ok := parseTracked(body)
			if c, is := wanted[way{have.Proto, have.From, have.To}]; ok && is && have.Timeout < c.Timeout {
				out = append(out, c)
			}
		})
		if err = errors.Join(err, errs); err != nil {
			return nil, err
		}
	}
	return out, nil
}
