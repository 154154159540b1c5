// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const dialAs = "WEFT_TEST_DIAL"

func TestMain(m *testing.M) {
	if socket := os.Getenv(dialAs); socket != "" {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		b, _ := io.ReadAll(conn)
		fmt.Printf("%s", b)
		os.Exit(0)
	}
	os.Exit(nettest.Main(m))
}

// recorder is an Attacher that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
	// do is the result of an ADD of a network; nil succeeds.
	do func(ctx context.Context, verb string, job attach.Job) error
	// records are the ledger's.
	records []attach.Record
	valid   []model.AttachmentKey
}

func (r *recorder) note(ctx context.Context, verb string, job attach.Job) error {
	r.mu.Lock()
	r.calls = append(r.calls, strings.TrimSpace(verb+" "+job.Network.Name+" "+job.Request.IfName))
	r.mu.Unlock()
	if r.do != nil {
		return r.do(ctx, verb, job)
	}
	return nil
}

func (r *recorder) AddAll(ctx context.Context, jobs []attach.Job) (results []model.Result, failed int, err error) {
	if gone := jobs[0].Abandoned; gone != nil && gone() { // as an Attacher does
		return nil, 0, errors.New("the caller gave up")
	}
	for i, job := range jobs {
		if err := r.note(ctx, "ADD", job); err != nil {
			return nil, i, err
		}
		results = append(results, model.Result{IPs: []model.IP{{Address: netip.MustParsePrefix("10.1.2.3/24")}}})
	}
	return results, 0, nil
}

func (r *recorder) DelAll(ctx context.Context, jobs []attach.Job) []error {
	errs := make([]error, len(jobs))
	for i, job := range jobs {
		errs[i] = r.note(ctx, "DEL", job)
	}
	return errs
}

func (r *recorder) Check(ctx context.Context, job attach.Job) error { return r.note(ctx, "CHECK", job) }

func (r *recorder) Status(ctx context.Context, job attach.Job) error {
	return r.note(ctx, "STATUS", job)
}

func (r *recorder) GC(ctx context.Context, job attach.Job, valid []model.AttachmentKey) error {
	r.mu.Lock()
	r.valid = append(r.valid, valid...)
	r.mu.Unlock()
	return r.note(ctx, "GC", job)
}

func (r *recorder) Keys(id string) ([]model.AttachmentKey, error) {
	var keys []model.AttachmentKey
	for _, rec := range r.records {
		if rec.Request.ContainerID == id {
			keys = append(keys, rec.Key())
		}
	}
	return keys, nil
}

func (r *recorder) Get(k model.AttachmentKey) (attach.Record, bool, error) {
	i := slices.IndexFunc(r.records, func(rec attach.Record) bool { return rec.Key() == k })
	if i < 0 {
		return attach.Record{}, false, nil
	}
	return r.records[i], true, nil
}

func (r *recorder) List() ([]attach.Record, error) { return r.records, nil }

// seen returns the calls so far and forgets them.
func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// serve runs a server over rec until the test ends.
func serve(t *testing.T, rec *recorder) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	stop := serveAt(t, rec, socket)
	t.Cleanup(stop)
	return socket
}

func serveAt(t *testing.T, rec *recorder, socket string) (stop func()) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	events, err := inotify.New()
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	s, err := New(Config{
		Events: events,
		Now:    time.Now,
		Socket: socket, Attacher: rec, Records: rec, Own: []*netns.NS{own}, Ready: func() { close(ready) },
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	watching := make(chan error, 1)
	go func() { watching <- events.Run(ctx) }()
	go func() { done <- s.Run(ctx) }()
	<-ready
	return sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(grace + time.Minute):
			t.Error("the server does not stop")
		}
		if err := <-watching; err != nil {
			t.Errorf("events: %v", err)
		}
		_ = own.Close()
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	})
}

// answer is a response.
type answer struct {
	exit  int
	out   string
	fault struct {
		Code int
		Msg  string
	}
}

// frameOf encodes a request.
func frameOf(conf string, netns bool, env ...string) []byte {
	b := wire.AppendEnv(make([]byte, wire.RequestHeader), env)
	wire.Header{Netns: netns, Env: len(b) - wire.RequestHeader, Conf: len(conf)}.Put(b)
	return append(b, conf...)
}

// ask calls the agent; ns may be nil.
func ask(t *testing.T, socket, conf string, ns *netns.NS, env ...string) answer {
	t.Helper()
	var rights []byte
	if ns != nil {
		rights = syscall.UnixRights(ns.Fd())
	}
	return send(t, socket, frameOf(conf, ns != nil, env...), rights)
}

func send(t *testing.T, socket string, frame, rights []byte) answer {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, _, err := conn.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = conn.Write(frame[n:])
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return parseAnswer(t, b)
}

func parseAnswer(t *testing.T, b []byte) answer {
	t.Helper()
	h, err := wire.ParseAnswer(b)
	if err != nil {
		t.Fatalf("answer %q: %v", b, err)
	}
	b = b[wire.AnswerHeader:]
	if len(b) != h.Len {
		t.Fatalf("answer has %d bytes, its header says %d", len(b), h.Len)
	}
	a := answer{exit: h.Exit, out: string(b)}
	if a.exit != 0 {
		if err := json.Unmarshal([]byte(a.out), &a.fault); err != nil {
			t.Fatalf("%q: %v", a.out, err)
		}
	}
	return a
}

// vars returns the variables of a call for an attachment.
func vars(verb, id string) []string {
	return []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/" + id,
		"CNI_PATH=/opt/cni/bin",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=p;IP=10.0.0.9",
	}
}
