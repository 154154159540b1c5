// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"
	"strconv"
	"strings"
)

// Operations of an expression on a set (NFT_DYNSET_OP).
const (
	dynsetUpdate = 1
	dynsetDelete = 2
)

// timeUnit is a unit of nft's durations.
type timeUnit struct {
	letter  string
	seconds uint64
}

func timeUnits() []timeUnit {
	return []timeUnit{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"m", 60}, {"s", 1}}
}

// dynset compiles "update @SET { FIELDS timeout TIME }" or "delete @SET { FIELDS }".
func (c *compiler) dynset() error {
	e := Expr{Name: "dynset", Key: dynsetUpdate}
	if c.next() == "delete" {
		e.Key = dynsetDelete
	}
	at := c.pos // the set is looked up when its key is known
	c.pos++
	if err := c.expect("{"); err != nil {
		return err
	}
	fs, err := c.key(0)
	if err != nil {
		return err
	}
	behind := c.pos
	c.pos = at
	s, err := c.lookup(fs, false)
	if err != nil {
		return err
	}
	c.pos = behind
	if s.DynamicSize == 0 && !c.open {
		return fmt.Errorf("rules add nothing to the set %s", s.Name)
	}
	if e.Key == dynsetUpdate {
		if err := c.expect("timeout"); err != nil {
			return err
		}
		if e.Timeout, err = parseTime(c.peek()); err != nil {
			return fmt.Errorf("%w, at %s", err, c.position())
		}
		c.pos++
	}
	e.Set, e.Sreg = s.Name, word(0)
	c.emit(e)
	return c.expect("}")
}

// parseTime parses a duration in nft's format, in milliseconds: "1d2h", "30s".
func parseTime(s string) (uint64, error) {
	var total uint64
	rest := s
	for _, u := range timeUnits() {
		n, after, found := strings.Cut(rest, u.letter)
		if !found {
			continue
		}
		v, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is no time", s)
		}
		total, rest = total+v*u.seconds*1000, after
	}
	if rest != "" || total == 0 {
		return 0, fmt.Errorf("%q is no time", s)
	}
	return total, nil
}

func timeText(ms uint64) string {
	var b strings.Builder
	left := ms / 1000
	for _, u := range timeUnits() {
		if n := left / u.seconds; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.letter)
			left %= u.seconds
		}
	}
	return b.String()
}

// dynset decompiles it.
func (r *decompiler) dynset(e Expr) bool {
	key, ok := r.concatenation(e.Sreg)
	if !ok || e.Flags != 0 {
		return false
	}
	r.clearRegisters()
	switch {
	case e.Key == dynsetUpdate && e.Timeout > 0 && e.Timeout%1000 == 0:
		return r.emit(fmt.Sprintf("update @%s { %s timeout %s }", e.Set, key, timeText(e.Timeout)))
	case e.Key == dynsetDelete && e.Timeout == 0:
		return r.emit(fmt.Sprintf("delete @%s { %s }", e.Set, key))
	}
	return false
}
