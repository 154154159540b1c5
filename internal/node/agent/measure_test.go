// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/nettest"
)

// web sends an HTTP request to a node's agent.
func (w *world) web(request string) string {
	w.t.Helper()
	var answer []byte
	err := w.node.Do(func() error {
		conn, err := net.DialTimeout("tcp", "127.0.0.1:9119", 30*time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(conn, "%s\r\n\r\n", request); err != nil {
			return err
		}
		answer, err = io.ReadAll(conn)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(answer)
}

// TestAuxiliary: an agent with a configuration file writes the runtime's configuration, counts calls and repairs,
// reports readiness, and follows the log level; the runtime's configuration stays when it exits.
func TestAuxiliary(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	conf := fmt.Sprintf(
		"metrics: {address: '127.0.0.1:9119'}\ninstall: {confDir: %q}\nnetwork: {mode: cluster, name: pods, podCIDRs: [10.7.0.0/16]}\n", w.path("net.d"),
	)
	if err := os.WriteFile(w.path("weft.yaml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"--config", w.path("weft.yaml")}
	w.start()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if strings.Contains(w.web("GET /readyz HTTP/1.0"), "200 OK") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	placed, err := os.ReadFile(w.path("net.d", "00-weft.conflist"))
	if err != nil || !strings.Contains(string(placed), `"subnet": "10.7.0.0/16"`) ||
		!strings.Contains(string(placed), w.socket()) {
		t.Fatalf("%s, %v: %s", placed, err, w.log())
	}
	list, ns := w.list("1.0.0", w.networks()["ptp"]), nettest.NS(t, "pod")
	if _, err := w.add(list, "c1", ns); err != nil {
		t.Fatal(err)
	}
	if _, err := w.add(w.list("1.0.0", `{"type":"ptp","ipam":{"type":"host-local"}}`), "c2", ns); err == nil {
		t.Fatal("no error")
	}
	if text := w.web("GET /attachments HTTP/1.0"); !strings.Contains(text, `"containerID":"c1"`) {
		t.Error(text)
	}
	nettest.Run(t, w.node, "nft", "flush", "ruleset")
	wants := []string{
		`weft_cni_call_duration_seconds_count{code="0",verb="ADD"} 1`, `weft_cni_call_duration_seconds_count{code="7",verb="ADD"} 1`,
		`weft_repairs_total{kind="nft"}`, "weft_attachments 1", "weft_ready 1",
	}
	var text string
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if text = w.web("GET /metrics HTTP/1.0"); strings.Contains(text, wants[2]) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if answer := w.web("PUT /loglevel HTTP/1.0\r\nContent-Length: 5\r\n\r\ndebug"); !strings.Contains(answer, "200 OK") {
		t.Error(answer)
	}
	if err := w.del(list, "c1", ns); err != nil {
		t.Error(err)
	}
	if !strings.Contains(w.log(), "level=DEBUG") {
		t.Errorf("no debug lines: %s", w.log())
	}
	w.stop()
	if again, err := os.ReadFile(w.path("net.d", "00-weft.conflist")); err != nil || string(again) != string(placed) {
		t.Errorf("the configuration went with the agent: %v", err)
	}
}

// TestQueueMetric: a DEL that waits in the queue is counted until it is done; here its entry is of a version that the
// agent cannot read.
func TestQueueMetric(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	if err := os.WriteFile(w.path("weft.yaml"), []byte("metrics: {address: '127.0.0.1:9119'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"--config", w.path("weft.yaml")}
	w.start()
	list, ns := w.list("1.0.0", w.networks()["ptp"]), nettest.NS(t, "pod")
	if _, err := w.add(list, "c1", ns); err != nil {
		t.Fatal(err)
	}
	w.kill()
	if err := w.del(list, "c1", ns); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(wire.QueueDir(w.socket()), "*"+wire.QueueSuffix))
	if err != nil || len(paths) != 1 {
		t.Fatalf("queue: %q, %v", paths, err)
	}
	entry, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	write := func(version byte) {
		entry[4] = version
		if err := errors.Join(os.WriteFile(w.path("entry"), entry, 0o600), os.Rename(w.path("entry"), paths[0])); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(n int) {
		t.Helper()
		want, text := fmt.Sprintf("\nweft_cni_queued_dels %d\n", n), ""
		for range 600 {
			if text = w.web("GET /metrics HTTP/1.0"); strings.Contains(text, want) {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("missing: %s in %s", want, text)
	}
	own := entry[4]
	write(own + 1)
	w.start()
	counts(1)
	write(own)
	counts(0)
}
