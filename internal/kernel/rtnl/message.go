// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
)

// Message is one request: a netlink type, flags beyond NLM_F_REQUEST, and a body built by the methods of Encoder.
type Message struct {
	Type  uint16
	Flags uint16
	// Verb and About name the request in errors; About is printed only then.
	Verb  string
	About fmt.Stringer
	// Forgive are the error numbers that mean that there is nothing to do.
	Forgive []unix.Errno
	// Loose accepts a dump that is interrupted at each attempt (NLM_F_DUMP_INTR): it may miss or include objects that
	// change meanwhile, the others are complete.
	Loose bool
	netlink.Encoder
}

// Name is an About for an object that has no value of its own.
type Name string

func (n Name) String() string { return string(n) }

// New begins a request with its fixed header.
func New(kind, flags uint16, verb string, about fmt.Stringer, header []byte) *Message {
	m := &Message{Type: kind, Flags: flags, Verb: verb, About: about, Encoder: netlink.NewEncoder(128)}
	m.Raw(header)
	return m
}

// Forgiving adds error numbers that mean that there is nothing to do.
func (m *Message) Forgiving(errnos ...unix.Errno) *Message {
	m.Forgive = append(m.Forgive, errnos...)
	return m
}

// Patch overwrites the beginning of the body, the fixed header passed to New.
func (m *Message) Patch(header []byte) { m.Encoder.Patch(0, header) }

// asks reports, by the number, whether a request only reads, and is answered: rtnetlink numbers NEW, DEL, GET and SET
// in groups of four.
func (m *Message) asks() bool { return m.Type%4 == unix.RTM_GETLINK%4 }

func (m *Message) forgives(errno unix.Errno) bool { return slices.Contains(m.Forgive, errno) }

func (m *Message) what() string { return strings.TrimSpace(m.Verb + " " + m.About.String()) }
