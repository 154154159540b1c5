// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMultusLog: each call and each failure is a line of the file that the configuration names, by its level.
func TestMultusLog(t *testing.T) {
	for level, want := range map[string][]string{
		"": nil, "panic": nil, "nonsense": nil,
		"error": {`[error] [shop/web/unknownUID:net]: error adding container to network "net": delegates[1] (network wire): no
such wire`},
		"verbose": {
			`[verbose] Add: shop:web:unknownUID:pods(pods):eth0 {"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}`,
			`[verbose] Add: shop:web:unknownUID:wire(wire):net1 {"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}`,
			`[verbose] Check: shop:web:pods(pods):eth0 {"cniVersion":"1.0.0","name":"pods","type":"ptp"}`,
			`[verbose] Check: shop:web:wire(wire):net1 {"cniVersion":"1.0.0","name":"wire","type":"ptp"}`,
			`[verbose] Del: shop:web:unknownUID:wire:net1 {"cniVersion":"1.0.0","name":"wire","type":"ptp"}`,
			`[verbose] Del: shop:web:unknownUID:pods:eth0 {"cniVersion":"1.0.0","name":"pods","type":"ptp"}`,
			`[error] [shop/web/unknownUID:net]: error adding container to network "net": delegates[1] (network wire): no
such wire`,
		},
	} {
		t.Run("level "+level, func(t *testing.T) {
			rec, pod := &recorder{}, nettest.NS(t, "pod")
			socket, path := serve(t, rec), filepath.Join(t.TempDir(), "logs", "multus.log")
			conf := `{"cniVersion":"1.0.0","name":"net","type":"multus","logFile":"` + path + `","logLevel":"` + level + `",
				"delegates":[{"name":"pods","type":"ptp"},{"name":"wire","type":"ptp"}]}`
			call := func(verb string) answer {
				t.Helper()
				env := append([]string{"CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"}, vars(verb, "a")...) // the first counts
				return ask(t, socket, conf, pod, env...)
			}
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				if a := call(verb); a.exit != 0 {
					t.Fatalf("%s: %+v", verb, a)
				}
			}
			rec.mu.Lock()
			rec.do = func(_ context.Context, _ string, job attach.Job) error {
				if job.Network.Name == "wire" {
					return errors.New("no\nsuch wire")
				}
				return nil
			}
			rec.mu.Unlock()
			if a := call("ADD"); a.exit == 0 {
				t.Fatal("the ADD did not fail")
			}
			var lines []string
			text, err := os.ReadFile(path)
			if want != nil && err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				_, rest, _ := strings.Cut(strings.TrimSpace(line), " ") // the time
				lines = append(lines, strings.ReplaceAll(rest, `\n`, "\n"))
			}
			if d := cmp.Diff(want, lines); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestMultusLogUnwritable: a call succeeds whatever its log is.
func TestMultusLogUnwritable(t *testing.T) {
	socket, pod := serve(t, &recorder{}), nettest.NS(t, "pod")
	for _, keys := range []string{
		`"logFile":"/proc/nonsuch/multus.log","logLevel":"debug"`, `"logFile":"` + t.TempDir() + `","logLevel":"debug"`,
		`"logFile":5,"logLevel":"debug"`, `"logFile":"relative","logLevel":"debug"`, `"logLevel":7`,
		`"logLevel":"debug","logOptions":{"maxSize":-1}`, `"logLevel":"debug","logOptions":"none","logToStderr":"yes"`,
	} {
		conf := `{"cniVersion":"1.0.0","name":"net","type":"multus",` + keys + `,"delegates":[{"type":"ptp"}]}`
		for _, verb := range []string{"ADD", "CHECK", "DEL"} {
			if a := ask(t, socket, conf, pod, vars(verb, "a")...); a.exit != 0 {
				t.Errorf("%s with %s: %+v", verb, keys, a)
			}
		}
	}
}
