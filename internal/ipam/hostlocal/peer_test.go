// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// peer is the reference plugin host-local from WEFT_PEER_BIN_DIR.
func peer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(os.Getenv("WEFT_PEER_BIN_DIR"), "host-local")
	if os.Getenv("WEFT_PEER_BIN_DIR") == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: not compared with the reference plugin host-local")
	}
	return path
}

func runPeer(ctx context.Context, t *testing.T, bin, verb, id, conf string) (netip.Addr, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id, "CNI_NETNS=/none", "CNI_IFNAME=eth0", "CNI_PATH=/",
		"CNI_NETNS_OVERRIDE=1",
	}
	cmd.Stdin = strings.NewReader(conf)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return netip.Addr{}, fmt.Errorf("%w: %s", err, out.String())
	}
	if verb != "ADD" {
		return netip.Addr{}, nil
	}
	var r struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return netip.Addr{}, err
	}
	return r.IPs[0].Address.Addr(), nil
}

// TestWithReferencePlugin serves one network by both programs in turns.
func TestWithReferencePlugin(t *testing.T) {
	bin := peer(t)
	dir := t.TempDir()
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/27","dataDir":"` + dir + `"}`)
	a := New(Config{})
	ctx := context.Background()
	held := map[string]netip.Addr{}
	turn := func(ours bool, verb, id string) (netip.Addr, error) {
		if !ours {
			return runPeer(ctx, t, bin, verb, id, conf)
		}
		if verb == "DEL" {
			return netip.Addr{}, a.Del(ctx, req(conf, id))
		}
		r, err := a.Add(ctx, req(conf, id))
		if err != nil {
			return netip.Addr{}, err
		}
		return r.IPs[0].Address.Addr(), nil
	}
	for i := range 60 {
		id := fmt.Sprint("c", i)
		got, err := turn(rand.IntN(2) == 0, "ADD", id)
		if err != nil {
			t.Fatalf("ADD %s: %v", id, err)
		}
		for other, addr := range held {
			if addr == got {
				t.Fatalf("%s and %s have %s", id, other, addr)
			}
		}
		held[id] = got
		if _, err := turn(i%2 == 0, "ADD", id); err == nil ||
			!strings.Contains(err.Error(), "duplicate allocation is not allowed") {
			t.Fatalf("the same ADD again: %v", err)
		}
		if len(held) > 20 {
			for id := range held {
				if _, err := turn(i%2 == 0, "DEL", id); err != nil {
					t.Fatal(err)
				}
				delete(held, id)
				if len(held) < 5 {
					break
				}
			}
		}
	}
	if have := taken2(t, dir); len(have) != len(held) {
		t.Errorf("%d files, %d attachments", len(have), len(held))
	}
}

// TestKilledAtRandom kills a process that allocates, again and again. What it leaves is complete, and the reference
// plugin continues from there.
func TestKilledAtRandom(t *testing.T) {
	if dir := os.Getenv("WEFT_TEST_ALLOCATE"); dir != "" {
		allocateForever(t, dir)
	}
	dir := t.TempDir()
	hits := 0
	const kills = 30
	for k := range kills {
		before := len(taken2(t, dir))
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtRandom$")
		cmd.Env = append(os.Environ(), "WEFT_TEST_ALLOCATE="+dir, fmt.Sprint("WEFT_TEST_ROUND=", k))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(time.Minute)
		for len(taken2(t, dir)) == before && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if len(taken2(t, dir)) > before {
			hits++
		}
		for name, content := range tree(t, filepath.Join(dir, "net")) {
			if _, err := netip.ParseAddr(name); err == nil && !strings.HasSuffix(content, "\r\neth0") {
				t.Fatalf("%s says %q after a kill", name, content)
			}
		}
	}
	t.Logf("%d kills, %d hit a process that was allocating, %d addresses", kills, hits, len(taken2(t, dir)))
	if hits < kills/4 {
		t.Errorf("only %d of %d kills hit a live allocation", hits, kills)
	}
	conf := section(`{"type":"host-local","subnet":"10.0.0.0/8","dataDir":"` + dir + `"}`)
	if err := New(Config{}).GC(context.Background(), req(conf, ""), nil); err != nil {
		t.Fatal(err)
	}
	if left := taken2(t, dir); len(left) != 0 {
		t.Errorf("%d addresses left after GC", len(left))
	}
	if bin := os.Getenv("WEFT_PEER_BIN_DIR"); bin != "" {
		if _, err := runPeer(t.Context(), t, peer(t), "ADD", "after", conf); err != nil {
			t.Errorf("the reference plugin after the kills: %v", err)
		}
	}
}

func allocateForever(t *testing.T, dir string) {
	a := New(Config{DataDir: dir, CallerKnows: true})
	for i := 0; ; i++ {
		_, err := a.Add(context.Background(),
			req(section(`{"type":"host-local","subnet":"10.0.0.0/8"}`), fmt.Sprintf("r%s-%d", os.Getenv("WEFT_TEST_ROUND"), i)))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Microsecond)
	}
}
