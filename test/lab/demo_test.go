// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// KEEP=1 make demo keeps the lab and ends with a link that opens its page. The page ends with the lab.
func TestDemoKept(t *testing.T) {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	if nettest.Programs(t) != bin {
		nettest.SkipMissing(t, "the demo runs the programs in bin")
	}
	if lo, err := net.InterfaceByName("lo"); err != nil || lo.Flags&net.FlagUp == 0 { // the tests' own namespace
		loopback := func(state string) {
			if out, err := exec.Command("ip", "link", "set", "lo", state).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		loopback("up")
		t.Cleanup(func() { loopback("down") })
	}
	dir := labDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	demo := exec.CommandContext(ctx, "../demo.sh")
	demo.Env = append(os.Environ(), "PREPARED=1", "VM=0", "NODES=2", "KEEP=1", "DIR="+dir)
	demo.WaitDelay = time.Second
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("demo: %v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	link := regexp.MustCompile(`^  (http://127\.0\.0\.1:\d+)/#token=([\w-]+)$`).FindStringSubmatch(lines[len(lines)-1])
	if link == nil {
		t.Fatalf("the demo does not end with the link of the page: %s", out)
	}
	request := func(method, path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, link[1]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Weft-Request", "1")
		r.Header.Set("X-Weft-Token", link[2])
		return http.DefaultClient.Do(r)
	}
	answer, err := request(http.MethodPost, "/api/session")
	if err != nil || answer.StatusCode != http.StatusNoContent {
		t.Fatalf("the link does not open a session: %v %v", answer, err)
	}
	page, err := request(http.MethodGet, "/")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(page.Body)
	if err != nil || !strings.Contains(string(text), "app.js") {
		t.Errorf("the page: %v: %s", err, text)
	}
	must(t, "lab", "down", "--dir", dir)
	within(t, time.Minute, "the page ends with the lab", func() bool {
		_, err := request(http.MethodGet, "/")
		return err != nil
	})
}
