// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestAttributes: encoded attributes are decoded unchanged, with numbers of both byte orders, and with padding and
// nesting where the kernel expects them.
func TestAttributes(t *testing.T) {
	var e Encoder
	e.Uint8(1, 0x7f)
	e.Uint16(2, 0x0102)
	e.Uint32(3, 0x01020304)
	e.BE16(4, 0x0102)
	e.BE32(5, 0x01020304)
	e.BE64(6, 0x0102030405060708)
	e.String(7, "eth0")
	mark := e.Begin(8 | unix.NLA_F_NESTED)
	e.Attr(1, []byte{1, 2, 3, 4, 5})
	e.Nest(2, func() { e.String(1, "") })
	e.End(mark)
	e.Raw([]byte{9})
	b := e.Bytes()
	if len(b)%4 != 0 || e.Size() != len(b) {
		t.Errorf("%d bytes, and Size is %d", len(b), e.Size())
	}
	if want := []byte{5, 0, 1, 0, 0x7f, 0, 0, 0}; binary.NativeEndian.Uint16([]byte{1, 0}) == 1 &&
		!bytes.HasPrefix(b, want) {
		t.Errorf("begins with % x, want % x", b[:8], want)
	}
	var kinds []uint16
	for kind := range Attrs(b) {
		kinds = append(kinds, kind)
	}
	if len(kinds) != 8 || kinds[7] != 8 {
		t.Errorf("attributes %v: want 8, without the flag for nesting", kinds)
	}
	if n := binary.NativeEndian.Uint16(Find(b, 2)); n != 0x0102 {
		t.Errorf("16 bits: %#x", n)
	}
	if n := Uint32(Find(b, 3)); n != 0x01020304 {
		t.Errorf("32 bits: %#x", n)
	}
	if a, b, c := BE16(Find(b, 4)), BE32(Find(b, 5)), BE64(Find(b, 6)); a != 0x0102 || b != 0x01020304 ||
		c != 0x0102030405060708 {
		t.Errorf("network byte order: %#x %#x %#x", a, b, c)
	}
	if s := String(Find(b, 7)); s != "eth0" {
		t.Errorf("string %q", s)
	}
	inner := Find(b, 8)
	if v := Find(inner, 1); !bytes.Equal(v, []byte{1, 2, 3, 4, 5}) {
		t.Errorf("nested: % x", v)
	}
	if v := Find(Find(inner, 2), 1); !bytes.Equal(v, []byte{0}) {
		t.Errorf("nested twice: % x", v)
	}
	if Find(b, 99) != nil || BE16(nil) != 0 || BE32([]byte{1}) != 0 || BE64(nil) != 0 || Uint32(nil) != 0 {
		t.Error("what is not there is not nothing")
	}
}

// addresses adds a request for each of n addresses on lo to the batch; index 1 is lo, others do not exist.
func addresses(b *Batch, n int, index uint32) {
	for i := range n {
		b.Message(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		h := make([]byte, unix.SizeofIfAddrmsg)
		h[0], h[1] = unix.AF_INET, 32
		binary.NativeEndian.PutUint32(h[4:], index)
		b.Raw(h)
		b.Attr(unix.IFA_LOCAL, []byte{10, byte(i >> 8), byte(i), 1})
	}
	b.AddFlags(unix.NLM_F_ACK)
}

func list(t *testing.T, s *Socket) int {
	t.Helper()
	var b Batch
	s.Begin(&b)
	b.Message(unix.RTM_GETADDR, 0)
	b.Raw(make([]byte, unix.SizeofIfAddrmsg))
	n := 0
	if _, err := s.Dump(&b, func(Answer) { n++ }); err != nil {
		t.Fatal(err)
	}
	return n
}

func socket(t *testing.T, buffer int) *Socket {
	t.Helper()
	s, err := Open(nettest.NS(t, "ns"), Options{
		Protocol: unix.NETLINK_ROUTE, Buffer: buffer, Datagrams: 2, Size: 8 << 10, ExtendedAcks: true, ShortAcks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestExchange: a batch is one exchange, its answers have their indexes, and refusals the kernel's messages.
func TestExchange(t *testing.T) {
	s := socket(t, 0)
	var b Batch
	for range 2 {
		s.Begin(&b)
		addresses(&b, 3, 1)
		var errnos []unix.Errno
		hint := ""
		err := s.Exchange(&b, func(a Answer) bool {
			i, ok := b.Index(a)
			if !ok || !a.Done() {
				t.Errorf("an answer of kind %d to number %d", a.Kind, a.Seq)
			}
			errnos, hint = append(errnos, a.Errno()), a.Hint()
			return i == b.Count()-1
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(errnos, hint)
		if again := len(errnos) == 3 && errnos[0] == unix.EEXIST && hint != ""; !again &&
			(len(errnos) != 1 || errnos[0] != 0) {
			t.Errorf("answers %v %q", errnos, hint)
		}
	}
	if n := list(t, s); n != 3 {
		t.Errorf("%d addresses, want 3", n)
	}
}

// TestStaleAnswers: unread answers are not taken for those of the next request.
func TestStaleAnswers(t *testing.T) {
	s := socket(t, 0)
	var b Batch
	s.Begin(&b)
	addresses(&b, 2, 1)
	if err := s.Exchange(&b, func(Answer) bool { return true }); err != nil {
		t.Fatal(err)
	}
	// A dump whose parts remain unread, as after an error while reading.
	b.Reset(s.seq)
	b.Message(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	b.Raw(make([]byte, unix.SizeofIfAddrmsg))
	b.Close()
	if err := s.send(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	s.unread = true
	if n := list(t, s); n != 2 {
		t.Errorf("%d addresses, want 2", n)
	}
}

// TestOverrun: a socket whose receive buffer was too small for the answers returns an error, and then works again.
func TestOverrun(t *testing.T) {
	s := socket(t, 4096)
	var b Batch
	for try := range 2 {
		s.Begin(&b)
		addresses(&b, 100, 99) // each of them is refused
		answers := 0
		err := s.Exchange(&b, func(a Answer) bool {
			answers++
			return a.Seq == b.Last()
		})
		if !errors.Is(err, unix.ENOBUFS) {
			t.Fatalf("attempt %d: %d answers to 100 requests, then %v: want ENOBUFS", try, answers, err)
		}
	}
	s.Begin(&b)
	addresses(&b, 1, 1)
	if err := s.Exchange(&b, func(a Answer) bool {
		if errno := a.Errno(); errno != 0 || a.Seq != b.Last() {
			t.Errorf("an answer to number %d: %v", a.Seq, errno)
		}
		return a.Seq == b.Last()
	}); err != nil {
		t.Fatal(err)
	}
	if n := list(t, s); n != 1 {
		t.Errorf("%d addresses, want 1", n)
	}
}

// TestNoAnswer: the socket does not wait for an answer that does not come.
func TestNoAnswer(t *testing.T) {
	s := socket(t, 0)
	var b Batch
	s.Begin(&b)
	b.Message(unix.NLMSG_NOOP, 0)
	if err := s.Exchange(&b, func(Answer) bool { return true }); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("%v, want %v", err, ErrNoAnswer)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Exchange(&b, func(Answer) bool { return true }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestInterruptedDump: the kernel's mark on any part of a dump is reported. A socket pair replaces the kernel here,
// because it cannot be made to interrupt a dump.
func TestInterruptedDump(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fds[1]) }()
	s := &Socket{fd: fds[0], seq: 7, in: inbox{count: 2, size: 4096}}
	defer func() { _ = s.Close() }()
	for _, marked := range []bool{true, false} {
		var question, answers Batch
		s.Begin(&question)
		question.Message(unix.RTM_GETADDR, 0)
		for part := range 3 {
			flags := uint16(unix.NLM_F_MULTI)
			if marked && part == 1 {
				flags |= unix.NLM_F_DUMP_INTR
			}
			answers.Reset(question.First())
			answers.Add(unix.RTM_NEWADDR, flags, make([]byte, unix.SizeofIfAddrmsg))
			if _, err := unix.Write(fds[1], answers.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		answers.Reset(question.First())
		answers.Add(unix.NLMSG_DONE, unix.NLM_F_MULTI, make([]byte, 4))
		if _, err := unix.Write(fds[1], answers.Bytes()); err != nil {
			t.Fatal(err)
		}
		n := 0
		interrupted, err := s.Dump(&question, func(Answer) { n++ })
		if err != nil || n != 3 || interrupted != marked {
			t.Errorf("%d entries, interrupted: %v, %v; want 3, %v", n, interrupted, err, marked)
		}
	}
}

func TestRetry(t *testing.T) {
	ctx := t.Context()
	calls := 0
	if err := Retry(ctx, 5, func(attempt int) (bool, error) { calls++; return attempt < 2, nil }); err != nil ||
		calls != 3 {
		t.Errorf("%d calls, %v; want 3", calls, err)
	}
	calls = 0
	reason := errors.New("reason")
	err := Retry(ctx, 3, func(int) (bool, error) { calls++; return false, errors.Join(ErrInterrupted, reason) })
	if !errors.Is(err, ErrInterrupted) || !errors.Is(err, reason) || calls != 3 {
		t.Errorf("%d calls, %v; want 3, and why", calls, err)
	}
	if err := Retry(ctx, 3, func(int) (bool, error) { return true, nil }); !errors.Is(err, ErrInterrupted) {
		t.Errorf("%v, want %v", err, ErrInterrupted)
	}
	if err := Retry(ctx, 3, func(attempt int) (bool, error) {
		calls = attempt
		return true, reason
	}); !errors.Is(err, reason) || calls != 0 {
		t.Errorf("attempt %d: %v, want it at once", calls, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := Retry(ended, 3, func(int) (bool, error) { return false, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// countAttrs counts attributes and those nested in them, four levels deep, as drivers read them.
func countAttrs(b []byte) (n int) {
	for kind, v := range Attrs(b) {
		n++
		if kind != 1 {
			continue
		}
		for kind, v := range Attrs(v) {
			n++
			if kind != 1 {
				continue
			}
			for range Attrs(v) {
				n++
			}
		}
	}
	return n
}

// TestAllocations: neither encoding into a reused batch nor decoding allocates.
func TestAllocations(t *testing.T) {
	var b Batch
	encode := func() {
		b.Reset(1)
		for range 20 {
			b.Message(unix.RTM_NEWLINK, unix.NLM_F_ACK)
			b.Nest(1, func() {
				b.Nest(1, func() {
					b.Uint32(1, 1)
					b.String(2, "eth0")
				})
				b.BE64(2, 2)
			})
		}
		b.Close()
	}
	encode()
	if n := testing.AllocsPerRun(100, encode); n != 0 {
		t.Errorf("encoding: %v allocations", n)
	}
	attrs := 0
	if n := testing.AllocsPerRun(100, func() {
		attrs = 0
		Messages(b.Bytes(), func(a Answer) { attrs += countAttrs(a.Body) })
	}); n != 0 || attrs != 20*5 {
		t.Errorf("decoding %d attributes: %v allocations", attrs, n)
	}
}

// FuzzMessages: for any input, nothing is read beyond it.
func FuzzMessages(f *testing.F) {
	var b Batch
	b.Reset(1)
	b.Message(unix.RTM_NEWADDR, 0)
	b.Nest(1, func() { b.String(2, "lo") })
	b.Close()
	f.Add(b.Bytes())
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(_ *testing.T, b []byte) {
		Messages(b, func(a Answer) {
			a.Errno()
			_ = a.Hint()
			if _, body, ok := a.Netfilter(); ok {
				countAttrs(body)
			}
			countAttrs(a.Body)
		})
	})
}
