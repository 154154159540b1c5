// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxLogPrefix is how long the kernel lets a prefix be.
const maxLogPrefix = 127

// usualBurst is nft's burst where none is named.
const usualBurst = 5

// log compiles "log [prefix TEXT] [group N [snaplen N]]"; TEXT is one word with quotes around it.
func (c *compiler) log() error {
	c.pos++
	e := expr{op: "log"}
	if c.accept("prefix") {
		prefix, err := c.quoted()
		if err != nil {
			return err
		}
		e.prefix = prefix
	}
	if c.accept("group") {
		n, err := c.number("a log group", 16)
		if err != nil {
			return err
		}
		group := uint16(n)
		e.group = &group
		if c.accept("snaplen") {
			n, err := c.number("a length in bytes", 32)
			if err != nil {
				return err
			}
			e.size = uint32(n)
		}
	}
	c.emit(e)
	return nil
}

// quoted steps over a word with quotes around it.
func (c *compiler) quoted() (string, error) {
	word, begun := strings.CutPrefix(c.peek(), `"`)
	word, ended := strings.CutSuffix(word, `"`)
	if !begun || !ended || word == "" || len(word) > maxLogPrefix || strings.ContainsAny(word, `"\,`) {
		return "", fmt.Errorf("want one word in quotes, of at most %d bytes and without commas, at %s", maxLogPrefix, c.here())
	}
	c.pos++
	return word, nil
}

func (c *compiler) number(what string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(c.peek(), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("want %s at %s", what, c.here())
	}
	c.pos++
	return n, nil
}

func logText(e expr) string {
	text := "log"
	if e.prefix != "" {
		text += fmt.Sprintf(` prefix "%s"`, e.prefix)
	}
	if e.group != nil {
		text += fmt.Sprintf(" group %d", *e.group)
		if e.size != 0 {
			text += fmt.Sprintf(" snaplen %d", e.size)
		}
	}
	return text
}

// period is a word for a number of seconds.
type period struct {
	word    string
	seconds uint64
}

func periods() []period {
	return []period{{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}}
}

// limit compiles "limit rate [over] N/second [burst N packets]".
func (c *compiler) limit() error {
	c.pos++
	if err := c.want("rate"); err != nil {
		return err
	}
	e := expr{op: "limit", burst: usualBurst}
	if c.accept("over") {
		e.flags = limitOver
	}
	rate, word, _ := strings.Cut(c.peek(), "/")
	n, err := strconv.ParseUint(rate, 10, 31)
	for _, p := range periods() {
		if p.word == word {
			e.rate, e.per = n, p.seconds
		}
	}
	if err != nil || e.rate == 0 {
		return fmt.Errorf("want a rate as 10/second at %s", c.here())
	}
	c.pos++
	if c.accept("burst") {
		n, err := c.number("a number of packets", 31)
		if err != nil {
			return err
		}
		if err := c.want("packets"); err != nil {
			return err
		}
		if n == 0 {
			return errors.New("burst 0 packets lets nothing pass")
		}
		e.burst = uint32(n)
	}
	c.emit(e)
	return nil
}

func limitText(e expr) (string, bool) {
	over := ""
	if e.flags == limitOver {
		over = "over "
	} else if e.flags != 0 {
		return "", false
	}
	if e.key != 0 {
		return "", false // of bytes
	}
	for _, p := range periods() {
		if p.seconds != e.per {
			continue
		}
		text := fmt.Sprintf("limit rate %s%d/%s", over, e.rate, p.word)
		if e.burst != usualBurst {
			text += fmt.Sprintf(" burst %d packets", e.burst)
		}
		return text, true
	}
	return "", false
}
