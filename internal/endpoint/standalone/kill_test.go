// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/standalone"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const bePlugin = "WEFT_TEST_BE_PLUGIN"

// TestBeKilled is not a test: it is the plugin that TestKilled kills.
func TestBeKilled(t *testing.T) {
	name := os.Getenv(bePlugin)
	if name == "" {
		return
	}
	standalone.Main(t.Context(), standalone.Env{
		Argv0: name, Getenv: os.Getenv, Environ: os.Environ(), Now: time.Now, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
}

// A plugin that is killed at any moment leaves nothing that its DEL does not remove.
func TestKilled(t *testing.T) {
	for _, typ := range []string{"host-device", "tuning", "sbr"} {
		t.Run(typ, func(t *testing.T) {
			h := newHost(t)
			h.card()
			ns := quickNS(t)
			options := `,"device":"ens5"` + lentIPAM
			if typ != "host-device" {
				options = map[string]string{"tuning": tunedOptions, "sbr": ""}[typ]
				lend := conf("1.1.0", "host-device", `,"device":"ens5"`+lentIPAM)
				options += `,"prevResult":` + h.must("host-device", "ADD", lend, ns).stdout
				defer h.must("host-device", "DEL", lend, ns)
			}
			c := conf("1.1.0", typ, options)
			inspect := func() string {
				if typ == "host-device" {
					return cardState(t) + steady(stateOf(t, ns))
				}
				return steady(stateOf(t, ns))
			}
			before := inspect()
			usual := time.Hour
			for range 3 {
				begin := time.Now()
				h.killed(typ, "ADD", c, ns, time.Hour)
				usual = min(usual, time.Since(begin))
				h.must(typ, "DEL", c, ns)
			}
			const rounds = 24
			hits, aim := 0, nettest.NewAim(usual)
			for i := range rounds {
				verb := "ADD"
				if i%2 == 1 {
					verb = "DEL"
					h.killed(typ, "ADD", c, ns, time.Hour)
				}
				hit := h.killed(typ, verb, c, ns, aim.Moment())
				if aim.Record(hit); hit {
					hits++
				}
				h.must(typ, "DEL", c, ns)
				if got := inspect(); got != before {
					t.Fatalf("%s killed, DEL\n%s\nbefore\n%s", verb, got, before)
				}
				if typ == "host-device" {
					h.nothingOf(typ)
				}
			}
			t.Logf("%d of %d kills hit a live call", hits, rounds)
			if hits < rounds/4 {
				t.Errorf("too few kills hit a live call: %d of %d", hits, rounds)
			}
		})
	}
}

// killed runs a plugin in a process of its own and kills it after a while; it reports whether it was still alive.
func (h *host) killed(name, verb, conf string, ns *netns.NS, after time.Duration) bool {
	h.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBeKilled$")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(conf, "DATA", h.data))
	cmd.Env = append(os.Environ(), bePlugin+"="+name, "CNI_COMMAND="+verb, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0",
		"CNI_NETNS="+ns.Path(), "CNI_PATH="+h.bin, "WEFT_JOURNAL_DIR="+h.journal)
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	return err != nil && strings.Contains(err.Error(), "killed")
}
