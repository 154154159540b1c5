// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// ported is a portmap with one port for every address of the node, and one for a single address.
func ported(port int) string {
	return fmt.Sprintf(
		`{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":%d,"containerPort":80,"protocol":"tcp"},
		{"hostPort":%d,"containerPort":53,"protocol":"udp","hostIP":"192.0.2.1"}]}}`, port, port)
}

// mappedPorts is what of the node's table speaks of a port.
func mappedPorts(t *testing.T, port int) int {
	t.Helper()
	out, _ := nettest.Try(nil, "nft", "list", "table", "inet", "weft_hostports")
	return strings.Count(out, fmt.Sprintf(" . %d comment", port))
}

// A list with a portmap is planned and applied in one: the port leads to an interface that was not there when it was
// planned. The second container that wants the port is refused as a whole; it gets it when the first one has gone.
func TestPortInAList(t *testing.T) {
	n := newNode(t)
	first, ns1 := n.pod()
	second, ns2 := n.pod()
	one, two := n.job(n.list(bridge, ported(8080)), first, ns1), n.job(n.list(bridge, ported(8080)), second, ns2)
	result := n.add(one)
	if got := mappedPorts(t, 8080); got != 2 {
		t.Errorf("%d elements for port 8080, want 2", got)
	}
	if out := nettest.Run(t, nil, "nft", "list", "set", "inet", "weft_hostports", "hairpin4"); !strings.Contains(out,
		`"abr0" . `+result.IPs[0].Address.Addr().String()) {
		t.Errorf("the bridge is not known: %s", out)
	}
	_, err := n.Add(t.Context(), two)
	wantCode(t, "second", err, model.CodeInUse, "hostPort 8080/tcp is taken by attachment net/"+first)
	if _, found, err := n.cfg.Records.Get(two.Request.Key()); found || err != nil {
		t.Errorf("a record of the second is left: %v", err)
	}
	one.Prev = &result
	if err := n.Check(t.Context(), one); err != nil {
		t.Error(err)
	}
	one.Prev = nil
	if again := n.add(one); diff(result, again) != "" {
		t.Errorf("the same ADD again: %s", diff(result, again))
	}
	if err := n.Del(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if got := mappedPorts(t, 8080); got != 0 {
		t.Errorf("%d elements for port 8080 after DEL", got)
	}
	n.add(two)
	if err := n.GC(t.Context(), two, nil); err != nil {
		t.Fatal(err)
	}
	if got := mappedPorts(t, 8080); got != 0 {
		t.Errorf("%d elements for port 8080 after GC", got)
	}
	n.clean("GC")
}

// Killed or failing at any step, nothing of the ports is left.
func TestPortUndone(t *testing.T) {
	for _, step := range []string{
		"after ipam", "before promise plan", "after promise plan", "after apply", "before done",
	} {
		t.Run(step, func(t *testing.T) {
			n := newNode(t)
			id, ns := n.pod()
			n.cfg.Failpoint = func(s string) error {
				if s == step {
					return errors.New("cut here")
				}
				return nil
			}
			n.Attacher = attach.New(n.cfg)
			if _, err := n.Add(t.Context(), n.job(n.list(bridge, ported(8080)), id, ns)); err == nil {
				t.Fatal("no failure")
			}
			if got := mappedPorts(t, 8080); got != 0 {
				t.Errorf("%d elements are left", got)
			}
			n.clean("undo")
		})
	}
}

// Connections to a container's ports are flushed when its address can be allocated again, and by the next agent if this
// one is killed before. DEL does not wait for it: the kernel walks its table.
func TestConnectionsOfDeletedPorts(t *testing.T) {
	n := newNode(t)
	if _, err := exec.LookPath("conntrack"); err != nil {
		nettest.SkipMissing(t, "no conntrack program")
	}
	// attached adds a container to which a connection is translated, and returns the number of such connections.
	attached := func() (job attach.Job, connections func() int) {
		id, ns := n.pod()
		job = n.job(n.list(bridge, ported(8080)), id, ns)
		to := n.add(job).IPs[0].Address.Addr().String()
		argv := "conntrack -I -p tcp -s 198.51.100.1 -d 192.0.2.1 --sport 1000 --dport 8080 --state ESTABLISHED --timeout 600 --dst-nat "
		if out, err := nettest.Try(nil, strings.Fields(argv+to+":80")...); err != nil {
			nettest.Skip(t, "the kernel does not take tracked connections: "+out)
		}
		return job, func() int { return strings.Count(nettest.Run(t, nil, "conntrack", "-L"), "src="+to+" ") }
	}
	job, connections := attached()
	if got := connections(); got != 1 {
		t.Fatalf("%d connections before DEL", got)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	n.drain()
	if got := connections(); got != 0 {
		t.Errorf("%d connections after DEL", got)
	}

	job, connections = attached()
	killed := n.cfg
	killed.Reaper = kernel.NewReaper(n.cfg.Host, n.cfg.Log) // it does not run
	if err := attach.New(killed).Del(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if rec, found, err := n.ledger.Get(job.Request.Key()); !found || rec.Stage != attach.Releasing || err != nil {
		t.Errorf("record before the reaper: %t, %s, %v", found, rec.Stage, err)
	}
	if got := connections(); got != 1 {
		t.Errorf("DEL has waited for the kernel's table: %d connections", got)
	}
	if report, err := n.Recover(t.Context()); err != nil || report.Undone != 1 {
		t.Errorf("%s, %v", report, err)
	}
	if got := connections(); got != 0 {
		t.Errorf("%d connections after the next agent's start", got)
	}
	n.clean("recovery")
}

// TestFlushFails: if connections to a deleted container cannot be flushed, its address is not allocated again and its
// record stays, for the next agent too, but no other container waits.
func TestFlushFails(t *testing.T) {
	n := newNode(t)
	closed, err := kernel.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	logged := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(logged)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cfg := n.cfg
	cfg.Reaper = kernel.NewReaper(closed, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = cfg.Reaper.Run(ctx) }()
	defer func() { cancel(); <-done }()
	broken := attach.New(cfg)

	id, ns := n.pod()
	ports := n.job(n.list(bridge, ported(8080)), id, ns)
	addr := n.add(ports).IPs[0].Address.Addr()
	id, ns = n.pod()
	plain := n.job(n.list(bridge), id, ns)
	n.add(plain)
	for _, job := range []attach.Job{ports, plain} {
		if err := broken.Del(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if err := broken.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, found, err := n.ledger.Get(plain.Request.Key()); found || err != nil {
		t.Errorf("the record of the container without ports is there: %t, %v", found, err)
	}
	if rec, found, err := n.ledger.Get(ports.Request.Key()); !found || rec.Stage != attach.Releasing || err != nil {
		t.Errorf("the record of the other one: %t, %s, %v", found, rec.Stage, err)
	}
	static := fmt.Sprintf(`{"type":"bridge","bridge":"abr0","ipam":{"type":"static","addresses":[{"address":"%s/24"}]}}`, addr)
	id, ns = n.pod()
	_, err = broken.Add(t.Context(), n.job(n.list(static), id, ns))
	var e *model.Error
	if !errors.As(err, &e) || e.Code != model.CodeTryAgain {
		t.Errorf("the address is allocated: %v", err)
	}
	if text, err := os.ReadFile(logged); err != nil || strings.Count(string(text), "could not be flushed") != 1 {
		t.Errorf("%v\n%s", err, text)
	}
	if report, err := n.Recover(t.Context()); err != nil || report.Undone != 1 {
		t.Errorf("%s, %v", report, err)
	}
	n.clean("recovery")
}
