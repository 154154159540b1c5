// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// script writes a program.
func script(t *testing.T, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func newRunner(t *testing.T) *tunnel.Runner {
	t.Helper()
	return newRunnerWith(t, 0)
}

func newRunnerWith(t *testing.T, most time.Duration) *tunnel.Runner {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	r := tunnel.New(tunnel.Config{
		Env: append(os.Environ(), "GREETING=hello world"), CommandTime: most, Random: rand.Reader,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, After: time.After,
	})
	t.Cleanup(r.Close)
	return r
}

func extensionPeer(node, cidr, endpoint, data string) mesh.TunnelPeer {
	return mesh.TunnelPeer{
		Node: node, CIDR: netip.MustParsePrefix(cidr), Endpoint: netip.AddrPortFrom(netip.MustParseAddr(endpoint), 0),
		Options: map[string]string{mesh.OptionData: data},
	}
}

// Commands run in flannel's way and order, for what joins, changes and leaves.
func TestExtension(t *testing.T) {
	r := newRunner(t)
	out := filepath.Join(t.TempDir(), "out")
	note := script(t, "note", `read -r line; echo "$@ | $NETWORK $SUBNET $IPV6SUBNET $PUBLIC_IP $PUBLIC_IPV6 | $line" >>`+
		out)
	said := func() string { b, _ := os.ReadFile(out); return string(b) }
	want := mesh.Tunnel{Backend: "extension", Link: "extension", Options: map[string]string{
		mesh.OptionPostStartup: note + " post $SUBNET", mesh.OptionSubnetAdd: note + ` add ${SUBNET} 'no shell' $(date)`,
		mesh.OptionSubnetRemove: note + " remove $GREETING",
		mesh.OptionNetwork:      "10.244.0.0/16", mesh.OptionSubnet: "10.244.1.0/24", mesh.OptionSubnetV6: "fd00:244:1::/64",
		mesh.OptionPublic: "192.168.0.1", mesh.OptionPublicV6: "fd00::1",
	}}
	keep := func(peers ...mesh.TunnelPeer) {
		t.Helper()
		want.Peers = peers
		if err := r.Keep(t.Context(), []mesh.Tunnel{want}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(lines ...string) {
		t.Helper()
		text := strings.Join(lines, "\n") + "\n"
		within(t, "commands have run", func() bool { return strings.Count(said(), "\n") >= len(lines) })
		if d := cmp.Diff(text, said()); d != "" {
			t.Fatalf("commands (-want +got):\n%s", d)
		}
	}
	lines := []string{"post 10.244.1.0/24 | 10.244.0.0/16 10.244.1.0/24 fd00:244:1::/64 192.168.0.1 fd00::1 | "}
	keep()
	expect(lines...)
	two := extensionPeer("n2", "10.244.2.0/24", "192.168.0.2", "data of n2")
	keep(two, extensionPeer("n2", "fd00:244:2::/64", "fd00::2", "data of n2"))
	lines = append(lines,
		"add 10.244.2.0/24 'no shell' $(date) |  10.244.2.0/24 fd00:244:2::/64 192.168.0.2 fd00::2 | data of n2")
	expect(lines...)
	keep(two) // it has lost its second prefix
	lines = append(lines, "remove hello world |  10.244.2.0/24 fd00:244:2::/64 192.168.0.2 fd00::2 | data of n2",
		"add 10.244.2.0/24 'no shell' $(date) |  10.244.2.0/24  192.168.0.2  | data of n2")
	expect(lines...)
	keep(two)
	keep()
	expect(append(lines, "remove hello world |  10.244.2.0/24  192.168.0.2  | data of n2")...)
}

// TestExtensionLearns: the output of the first command is learned once; the error of a failed one has its output.
func TestExtensionLearns(t *testing.T) {
	r := newRunner(t)
	count := filepath.Join(t.TempDir(), "count")
	cfg := mesh.Config{
		Backend: "extension", Extension: mesh.Extension{
			PreStartupCommand: script(t, "pre", "echo run >>"+count+"; echo noise >&2; echo ' what others need '"),
		},
	}
	for range 2 {
		got, err := r.Learn(t.Context(), cfg)
		if err != nil || got["extension"] != "what others need" {
			t.Fatalf("learned %q, %v", got, err)
		}
	}
	if b, _ := os.ReadFile(count); string(b) != "run\n" {
		t.Errorf("the command ran more than once: %q", b)
	}
	cfg.Extension.PreStartupCommand = script(t, "bad", "echo out of order >&2; exit 3")
	if _, err := r.Learn(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "exit status 3: out of order") {
		t.Errorf("a command that fails: %v", err)
	}
	cfg.Extension.PreStartupCommand = "/no/such/program"
	if _, err := r.Learn(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("no program: %v", err)
	}
	cfg.Extension.PreStartupCommand = "  "
	if _, err := r.Learn(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("no words: %v", err)
	}
}

// A command that takes too long is ended, and what it prints without end is not kept.
func TestExtensionIsBounded(t *testing.T) {
	r := newRunnerWith(t, 200*time.Millisecond)
	cfg := mesh.Config{
		Backend: "extension", Extension: mesh.Extension{
			PreStartupCommand: script(t, "hangs", "echo working; exec sleep 1000"),
		},
	}
	if _, err := r.Learn(t.Context(), cfg); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "working") {
		t.Errorf("a command that hangs: %v", err)
	}
	r = newRunner(t)
	cfg.Extension.PreStartupCommand = script(t, "talks",
		"i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done")
	got, err := r.Learn(t.Context(), cfg)
	if n := len(got["extension"]); err != nil || n > 64<<10 || n < 60<<10 {
		t.Errorf("a command that prints 120 kB: %d bytes, %v", n, err)
	}
}

// TestExtensionEnds: a command that hangs is killed with all its children, and one that fails is reported and retried.
func TestExtensionEnds(t *testing.T) {
	r := newRunner(t)
	dir := t.TempDir()
	child := filepath.Join(dir, "child")
	hangs := script(t, "hangs", "sleep 1000 & echo $! >"+child+".new; mv "+child+".new "+child+"; wait")
	want := mesh.Tunnel{Backend: "extension", Link: "extension", Options: map[string]string{mesh.OptionPostStartup: hangs}}
	if err := r.Keep(t.Context(), []mesh.Tunnel{want}); err != nil {
		t.Fatal(err)
	}
	var pid string
	within(t, "the command runs", func() bool {
		b, _ := os.ReadFile(child)
		pid = strings.TrimSpace(string(b))
		return pid != ""
	})
	if err := r.Keep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	within(t, "the command's child has ended", func() bool {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(b), ") Z ")
	})
	ready := filepath.Join(dir, "ready")
	want.Options = map[string]string{mesh.OptionSubnetAdd: script(t, "later", "test -e "+ready+" && echo done >>"+ready)}
	want.Peers = []mesh.TunnelPeer{extensionPeer("n2", "10.244.2.0/24", "192.168.0.2", "")}
	if err := r.Keep(t.Context(), []mesh.Tunnel{want}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Changed():
	case <-time.After(30 * time.Second):
		t.Fatal("nobody says that the command failed")
	}
	if err := r.Keep(t.Context(), []mesh.Tunnel{want}); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("a command that fails: %v", err)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	within(t, "it is tried again", func() bool { return r.Keep(context.Background(), []mesh.Tunnel{want}) == nil })
	if b, _ := os.ReadFile(ready); !strings.HasPrefix(string(b), "done\n") {
		t.Errorf("it was not run: %q", b)
	}
}
