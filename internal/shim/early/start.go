// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package early

import (
	"unsafe"

	"github.com/weft-net/weft/internal/wire"
)

// ordinary is what start gives when the ordinary program is to begin, instead of an exit code.
const ordinary = -1

// request is the call as it is gathered.
type request struct {
	command []byte
	netns   *byte // CNI_NETNS, ended by a zero byte; nil when it is not set or empty
	env     int   // where the variables end in the buffer
	end     int   // where the configuration ends
}

// start does the call when it is an ordinary one: sp is the stack as the kernel left it.
func start(sp unsafe.Pointer) int32 {
	m := memory()
	var r request
	if name := *(**byte)(unsafe.Add(sp, 8)); name != nil && wire.AgentPlugin(unsafe.Slice(name, length(name))) != "" {
		return ordinary
	}
	if !r.variables(m, sp) || !known(r.command) {
		return ordinary
	}
	whole := r.configuration(m)
	if whole {
		if exit, done := m.exchange(&r); done {
			return exit
		}
	}
	// The frame is in the buffer's first part; what is behind it is free.
	if !putBack(m.buf[r.env:r.end], m.spare(&r)) {
		write(1, lost())
		return 1
	}
	return ordinary
}

// spare is a part of the buffer that holds nothing any more: behind the configuration, or the variables before it.
func (m *store) spare(r *request) []byte {
	if bufSize-r.end >= r.env {
		return m.buf[r.end:]
	}
	return m.buf[:r.env]
}

// lost is the answer when the configuration is read and cannot be handed on.
func lost() []byte {
	const text = `{"cniVersion":"1.0.0","code":5,"msg":"stdin: the configuration cannot be kept: memfd_create does not work here"}` + "\n"
	return unsafe.Slice(unsafe.StringData(text), len(text))
}

// known tells whether the agent is asked at all.
func known(command []byte) bool {
	switch string(command) {
	case "ADD", "DEL", "CHECK", "GC", "STATUS":
		return true
	}
	return false
}

// variables gathers the CNI_* variables behind the place of the header, as wire.AppendEnv does.
func (r *request) variables(m *store, sp unsafe.Pointer) bool {
	argc := *(*uintptr)(sp)
	r.env = wire.RequestHeader
	for p := unsafe.Add(sp, (argc+2)*8); ; p = unsafe.Add(p, 8) {
		entry := *(**byte)(p)
		if entry == nil {
			return true
		}
		b := unsafe.Slice(entry, length(entry))
		if len(b) <= 4 || string(b[:4]) != "CNI_" {
			continue
		}
		if len(b)+1 > wire.MaxEnv+wire.RequestHeader-r.env {
			return false
		}
		r.env += copy(m.buf[r.env:], b)
		m.buf[r.env] = 0
		r.env++
		r.note(b)
	}
}

// note keeps what is needed here; the first one of a name counts.
func (r *request) note(b []byte) {
	const command, netns = "CNI_COMMAND=", "CNI_NETNS="
	if len(b) > len(command) && string(b[:len(command)]) == command && r.command == nil {
		r.command = b[len(command):]
	}
	if len(b) > len(netns) && string(b[:len(netns)]) == netns && r.netns == nil {
		r.netns = &b[len(netns)]
	}
}

func length(p *byte) int {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return n
}

// configuration reads stdin behind the variables. It is not whole when something went wrong or it is a large one.
func (r *request) configuration(m *store) bool {
	r.end = r.env
	for r.end < bufSize {
		n, err := read(0, m.buf[r.end:])
		if err != 0 || n > bufSize-r.end {
			return false
		}
		if n == 0 {
			return true
		}
		r.end += n
	}
	return false
}
