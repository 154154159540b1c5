// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/guest/handover"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func pod(t *testing.T) *netns.NS {
	t.Helper()
	nettest.Need(t, "tap")
	ns, far := nettest.NS(t, "pod"), nettest.NS(t, "far")
	nettest.Run(t, far, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	nettest.Run(t, ns, "ip", "addr", "add", "10.1.0.2/24", "dev", "eth0")
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	return ns
}

func testInput() plan.Input {
	return plan.Input{
		VM: model.VM{Namespace: "shop", Name: "vm1", Path: "spec", Owner: 107, Interfaces: []model.VMInterface{{
			Name: "default", Binding: model.VMMasquerade, Model: "virtio",
			Network: model.VMNetwork{
				Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24"),
				CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
			},
		}}},
	}
}

// TestLocal: without an agent this process applies, serves and undoes.
func TestLocal(t *testing.T) {
	ns, dir := pod(t), filepath.Join(t.TempDir(), "vm")
	h, err := Open(t.Context(), Config{
		Socket: filepath.Join(dir, "none.sock"), Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	p := Pod{NS: ns}
	if err := h.Serve(t.Context(), p, "shop/vm1"); err == nil ||
		!strings.Contains(err.Error(), "VM shop/vm1 is not in pod") {
		t.Errorf("%v", err)
	}
	record, err := h.Start(t.Context(), p, testInput())
	if err != nil {
		t.Fatal(err)
	}
	if known, err := FindInPod(t.Context(), h, p, "shop/vm1"); err != nil || known.PodID != record.PodID {
		t.Errorf("%+v %v", known, err)
	}
	if _, err := FindInPod(t.Context(), h, Pod{ID: "other"}, "shop/vm1"); err == nil ||
		!strings.Contains(err.Error(), "it is in pod "+record.PodID) {
		t.Errorf("%v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, p, "shop/vm1") }()
	if wires := takeWires(t, ns); wires != 1 {
		t.Errorf("%d wires", wires)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	// Without a namespace: Stop opens the pod by the path of the record.
	if err := h.Stop(t.Context(), Pod{}, "shop/vm1"); err != nil {
		t.Fatal(err)
	}
	if links := nettest.Run(t, ns, "ip", "-br", "link"); strings.Contains(links, "tap0") ||
		strings.Contains(links, "k6t") {
		t.Errorf("left: %s", links)
	}
	if err := h.Stop(t.Context(), p, "shop/vm1"); err != nil { // already stopped
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// takeWires connects as weft-guest and returns the number of wires.
func takeWires(t *testing.T, ns *netns.NS) int {
	t.Helper()
	for range 500 {
		var c *net.UnixConn
		err := ns.Do(func() (err error) {
			c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: GuestSocket, Net: "unix"})
			return err
		})
		if err != nil { // not listening yet
			time.Sleep(10 * time.Millisecond)
			continue
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if err := errors.Join(handover.WaitHello(c), handover.Ready(c)); err != nil {
			t.Fatal(err)
		}
		wires, err := handover.Receive(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wires {
			_ = w.Sockets.Close()
		}
		return len(wires)
	}
	t.Fatal("weft-guest is not served")
	return 0
}

// TestAgentThatDoesNotAnswer: a socket without a listener is an error with a hint.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket+".ping")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = Open(t.Context(), Config{Socket: socket, Log: slog.New(slog.DiscardHandler)})
	var fault *model.Error
	if !errors.As(err, &fault) || fault.Code != model.CodeTryAgain || !strings.Contains(fault.Hint, "start the agent") {
		t.Errorf("%v", err)
	}
}
