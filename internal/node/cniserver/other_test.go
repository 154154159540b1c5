// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestOtherVerbs: a Verb gets its words and its namespace; an invalid request is refused.
func TestOtherVerbs(t *testing.T) {
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	rec, ready := &recorder{}, make(chan struct{})
	socket := filepath.Join(t.TempDir(), "agent.sock")
	s, err := New(Config{
		Now:    time.Now,
		Socket: socket, Attacher: rec, Records: rec, Own: []*netns.NS{own}, Log: slog.New(slog.DiscardHandler),
		Ready: func() { close(ready) },
		Verbs: map[string]Verb{
			"echo": func(_ context.Context, ns *netns.NS, words []byte) ([]byte, error) {
				if ns == nil {
					return words, nil
				}
				return []byte(ns.Path()), nil
			},
			"fail":  func(context.Context, *netns.NS, []byte) ([]byte, error) { return nil, errors.New("no") },
			"panic": func(context.Context, *netns.NS, []byte) ([]byte, error) { panic("boom") },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-ready
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	ask := func(verb, words string, ns *netns.NS) answer {
		env := wire.VerbName + "=" + verb + "\x00"
		frame := append(make([]byte, wire.RequestHeader), env...)
		wire.Header{Netns: ns != nil, Env: len(env), Conf: len(words)}.Put(frame)
		var rights []byte
		if ns != nil {
			rights = syscall.UnixRights(ns.Fd())
		}
		return send(t, socket, append(frame, words...), rights)
	}
	pod := nettest.NS(t, "pod")
	if a := ask("echo", `{"netns":"/run/netns/pod"}`, pod); a.exit != 0 || a.out != "/run/netns/pod" {
		t.Errorf("%+v", a)
	}
	if a := ask("echo", "words", nil); a.exit != 0 || a.out != "words" {
		t.Errorf("%+v", a)
	}
	for verb, want := range map[string]string{
		"fail": "no", "panic": "panic: panic: boom", "other": `the agent knows no "other"`,
	} {
		if a := ask(verb, "{}", nil); a.exit != 1 || a.fault.Msg != want {
			t.Errorf("%s: %+v", verb, a)
		}
	}
	if a := ask("echo", "{}", own); a.fault.Code != int(model.CodeInvalidNetns) ||
		!strings.Contains(a.fault.Msg, "of the node itself") {
		t.Errorf("%+v", a)
	}
	if calls := rec.seen(); len(calls) > 0 {
		t.Errorf("attach was asked %q", calls)
	}
}
