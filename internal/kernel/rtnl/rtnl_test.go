// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func open(t *testing.T) *Socket {
	t.Helper()
	s, err := Open(nettest.NS(t, "ns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// address requests 10.x.y.1/32 on lo, which is link 1 in every namespace; a negative n requests it on a missing link.
func address(n int) *Message {
	h := make([]byte, unix.SizeofIfAddrmsg)
	h[0], h[1] = unix.AF_INET, 32
	index := uint32(1)
	if n < 0 {
		index, n = 99, -n
	}
	binary.NativeEndian.PutUint32(h[4:], index)
	m := New(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add", Name(fmt.Sprintf("address %d", n)), h)
	ip := []byte{10, byte(n >> 8), byte(n), 1}
	m.Attr(unix.IFA_LOCAL, ip)
	m.Attr(unix.IFA_ADDRESS, ip)
	return m
}

func addresses() *Message {
	return New(unix.RTM_GETADDR, 0, "read", Name("addresses"), make([]byte, unix.SizeofIfAddrmsg))
}

func count(t *testing.T, s *Socket) int {
	t.Helper()
	n := 0
	if err := s.Dump(t.Context(), addresses(), func([]byte) { n++ }); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLongBatch sends many more requests than one write contains, every seventh of which is refused: the refusals have
// their indexes and names, and all others were performed.
func TestLongBatch(t *testing.T) {
	for name, send := range map[string]func(*Socket, []*Message) error{
		"a batch":          func(s *Socket, all []*Message) error { return s.Send(t.Context(), all) },
		"as it is encoded": func(s *Socket, all []*Message) error { return s.SendEach(t.Context(), slices.Values(all)) },
	} {
		t.Run(name, func(t *testing.T) { sendLongBatch(t, send) })
	}
}

func sendLongBatch(t *testing.T, send func(*Socket, []*Message) error) {
	s := open(t)
	const size = 1000
	batch := make([]*Message, size)
	want := 0
	for i := range batch {
		n := i + 1
		if i%7 == 3 {
			n, want = -n, want+1
		}
		batch[i] = address(n)
	}
	err := send(s, batch)
	var refused Refusals
	if !errors.As(err, &refused) || !errors.Is(err, unix.ENODEV) {
		t.Fatalf("refusals: %v", err)
	}
	if len(refused) != want {
		t.Errorf("%d refusals, want %d", len(refused), want)
	}
	for _, r := range refused {
		if r.Index%7 != 3 || r.What != fmt.Sprintf("add address %d", r.Index+1) {
			t.Errorf("refusal of request %d is about %q", r.Index, r.What)
		}
	}
	if text := err.Error(); len(text) > 400 || !strings.Contains(text, fmt.Sprintf("and %d more", want-3)) {
		t.Errorf("message: %s", text)
	}
	if n := count(t, s); n != size-want {
		t.Errorf("%d addresses, want %d", n, size-want)
	}
	if s.Writes() != size {
		t.Errorf("%d requests were counted, want %d", s.Writes(), size)
	}
}

func TestForgiven(t *testing.T) {
	s := open(t)
	batch := []*Message{address(1), address(1).Forgiving(unix.EEXIST), address(2)}
	if err := s.Send(t.Context(), batch); err != nil {
		t.Error(err)
	}
	err := s.Send(t.Context(), []*Message{address(1)})
	if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), "already assigned") {
		t.Errorf("the kernel's own words are missing: %v", err)
	}
	if n := count(t, s); n != 2 {
		t.Errorf("%d addresses, want 2", n)
	}
}

func TestEnds(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Send(ctx, []*Message{address(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("after its time: %v", err)
	}
	if err := s.Send(t.Context(), nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := s.Send(t.Context(), []*Message{address(1)}); err == nil {
		t.Error("a closed socket sends")
	}
}
