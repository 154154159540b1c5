// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package early

import "github.com/weft-net/weft/internal/wire"

// exchange asks the agent as shim does. It is not done when the ordinary program must go on: before the agent has the
// whole request nothing has happened; after, m.why tells what the agent did instead of answering.
func (m *store) exchange(r *request) (exit int32, done bool) {
	socket, plain := wire.PlainSocket(m.buf[r.env:r.end])
	if !plain || len(socket) == 0 || socket[0] != '/' || len(socket) > wire.MaxSocket {
		return 0, false
	}
	fd, ok := dial(socket, "")
	if !ok {
		return 0, false
	}
	h := wire.Header{Env: r.env - wire.RequestHeader, Conf: r.end - r.env}
	ns := uintptr(0)
	if r.netns != nil {
		got, errno := openNetns(r.netns)
		h.Netns, h.Errno, ns = errno == 0, uint16(errno), got
	}
	h.Put(m.buf[:])
	if !send(fd, m.buf[:r.end], ns, h.Netns) {
		shut(fd)
		return 0, false
	}
	patience := int64(wire.AnswerMillis)
	if !wait(fd, patience) {
		if patience = wire.CallMillis; !there(socket) || !wait(fd, patience) {
			m.why = wire.ErrSilent
			return 0, false
		}
	}
	return m.receive(fd, r.end, patience)
}

// there asks a silent agent on a socket of its own.
func there(socket []byte) bool {
	fd, ok := dial(socket, wire.PingSuffix)
	if !ok {
		return false
	}
	if !wait(fd, wire.PingMillis) {
		return false
	}
	var b [wire.AnswerHeader]byte
	n, err := read(fd, b[:])
	if err != 0 || n != wire.AnswerHeader {
		return false
	}
	a, bad := wire.ParseAnswer(b[:n])
	return bad == nil && a.Exit == 0
}

// receive reads the answer to behind the request, which is kept until all of it is here, and prints it. Its first bytes
// are there already; for each further part it waits so many milliseconds.
func (m *store) receive(fd uintptr, from int, patience int64) (exit int32, done bool) {
	have := 0
	buf := m.buf[from:]
	a := wire.Answer{}
	for need := wire.AnswerHeader; have < need; {
		if have > 0 && !wait(fd, patience) {
			m.why = wire.ErrBroken
			return 0, false
		}
		n, err := read(fd, buf[have:])
		if err != 0 || n <= 0 || n > len(buf)-have {
			m.why = wire.ErrBroken
			return 0, false
		}
		if have += n; need > wire.AnswerHeader || have < need {
			continue
		}
		var bad error
		if a, bad = wire.ParseAnswer(buf[:have]); bad != nil {
			m.why, _ = bad.(wire.Error)
			return 0, false
		}
		if need += a.Len; need > len(buf) {
			large, ok := room(need)
			if !ok {
				m.why = wire.ErrBroken
				return 0, false
			}
			copy(large, buf[:have])
			buf = large
		}
	}
	if !write(1, buf[wire.AnswerHeader:wire.AnswerHeader+a.Len]) {
		return 1, true
	}
	return int32(a.Exit), true
}
