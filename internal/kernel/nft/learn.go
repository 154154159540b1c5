// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"strconv"
	"strings"
)

// What an expression does to a set (NFT_DYNSET_OP).
const (
	dynsetUpdate = 1
	dynsetDelete = 2
)

// unitOfTime is how nft writes a time.
type unitOfTime struct {
	letter  string
	seconds uint64
}

func unitsOfTime() []unitOfTime {
	return []unitOfTime{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"m", 60}, {"s", 1}}
}

// learn compiles "update @SET { FIELDS timeout TIME }" or "delete @SET { FIELDS }".
func (c *compiler) learn() error {
	e := expr{op: "dynset", key: dynsetUpdate}
	if c.next() == "delete" {
		e.key = dynsetDelete
	}
	at := c.pos // the set is looked up when its key is known
	c.pos++
	if err := c.want("{"); err != nil {
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
	if s.learns == 0 && !c.open {
		return fmt.Errorf("rules add nothing to the set %s", s.name)
	}
	if e.key == dynsetUpdate {
		if err := c.want("timeout"); err != nil {
			return err
		}
		if e.timeout, err = parseTime(c.peek()); err != nil {
			return fmt.Errorf("%w, at %s", err, c.here())
		}
		c.pos++
	}
	e.set, e.sreg = s.name, word(0)
	c.emit(e)
	return c.want("}")
}

// parseTime reads a time as nft writes it, in milliseconds: "1d2h", "30s".
func parseTime(s string) (uint64, error) {
	var total uint64
	rest := s
	for _, u := range unitsOfTime() {
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
	for _, u := range unitsOfTime() {
		if n := left / u.seconds; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.letter)
			left %= u.seconds
		}
	}
	return b.String()
}

// learn reads it back.
func (r *reader) learn(e expr) bool {
	key, ok := r.concat(e.sreg)
	if !ok || e.flags != 0 {
		return false
	}
	r.forget()
	switch {
	case e.key == dynsetUpdate && e.timeout > 0 && e.timeout%1000 == 0:
		return r.say(fmt.Sprintf("update @%s { %s timeout %s }", e.set, key, timeText(e.timeout)))
	case e.key == dynsetDelete && e.timeout == 0:
		return r.say(fmt.Sprintf("delete @%s { %s }", e.set, key))
	}
	return false
}
