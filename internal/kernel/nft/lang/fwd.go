// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// fwd compiles "fwd to N": the packet leaves over the link with that index. A name could be another link's when a rule
// is read after the link was deleted.
func (c *compiler) fwd() error {
	c.pos++
	if c.family != unix.NFPROTO_NETDEV {
		return fmt.Errorf("fwd is for tables of family netdev")
	}
	if err := c.expect("to"); err != nil {
		return err
	}
	n, err := strconv.ParseUint(c.peek(), 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("want the index of a link at %s", c.position())
	}
	c.pos++
	c.emit(Expr{Name: "immediate", Dreg: word(0), Data: binary.NativeEndian.AppendUint32(nil, uint32(n))}, Expr{
		Name: "fwd", Sreg: word(0),
	})
	return nil
}

// fwd decompiles it.
func (r *decompiler) fwd(e Expr) bool {
	to, ok := r.register(e.Sreg)
	if !ok || len(to.data) != 4 {
		return false
	}
	r.clearRegisters()
	return r.emit(fmt.Sprintf("fwd to %d", binary.NativeEndian.Uint32(to.data)))
}
