// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// fwd compiles "fwd to N": the packet leaves over the link with that index. A link's name would be another link's when a rule is
// read back after the first one has gone.
func (c *compiler) fwd() error {
	c.pos++
	if c.family != unix.NFPROTO_NETDEV {
		return fmt.Errorf("fwd is for tables of family netdev")
	}
	if err := c.want("to"); err != nil {
		return err
	}
	n, err := strconv.ParseUint(c.peek(), 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("want the index of a link at %s", c.here())
	}
	c.pos++
	c.emit(expr{op: "immediate", dreg: word(0), data: binary.NativeEndian.AppendUint32(nil, uint32(n))}, expr{op: "fwd", sreg: word(0)})
	return nil
}

// fwd reads it back.
func (r *reader) fwd(e expr) bool {
	to, ok := r.get(e.sreg)
	if !ok || len(to.data) != 4 {
		return false
	}
	r.forget()
	return r.say(fmt.Sprintf("fwd to %d", binary.NativeEndian.Uint32(to.data)))
}
