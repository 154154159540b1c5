// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/standalone"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainParallel(m, 2)) }

// host is a node with weft's plugins and perhaps others.
type host struct {
	t       *testing.T
	journal string
	data    string
	bin     string
	root    string             // the node's files, / if empty
	step    func(string) error // see attach.Config
}

var errCut = errors.New("cut here")

func newHost(t *testing.T) *host {
	t.Helper()
	_, _ = nettest.Try(nil, "ip", "link", "del", "sbr0")
	return &host{t: t, journal: t.TempDir(), data: t.TempDir(), bin: t.TempDir()}
}

type answer struct {
	exit           int
	stdout, stderr string
}

// code is the error's code, 0 for none.
func (a answer) code() int {
	var e struct {
		CNIVersion string `json:"cniVersion"`
		Code       int    `json:"code"`
		Msg        string `json:"msg"`
	}
	if a.exit == 0 || json.Unmarshal([]byte(a.stdout), &e) != nil || e.CNIVersion == "" || e.Msg == "" {
		return 0
	}
	return e.Code
}

// call runs a plugin; env are K=V pairs in addition to those of the container.
func (h *host) call(name, verb, conf string, ns *netns.NS, env ...string) answer {
	h.t.Helper()
	vars := map[string]string{
		"CNI_COMMAND": verb, "CNI_PATH": h.bin, "WEFT_JOURNAL_DIR": h.journal, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0",
	}
	if ns != nil {
		vars["CNI_NETNS"] = ns.Path()
	}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	var stdout, stderr bytes.Buffer
	exit := standalone.Main(h.t.Context(), standalone.Env{
		Argv0: "/opt/cni/bin/" + name, Getenv: func(k string) string { return vars[k] }, Environ: os.Environ(), Now: time.Now,
		Stdin: strings.NewReader(strings.ReplaceAll(conf, "DATA", h.data)), Stdout: &stdout, Stderr: &stderr, Version: "test",
		Root: h.root, Failpoint: h.step,
	})
	return answer{exit, stdout.String(), stderr.String()}
}

func (h *host) must(name, verb, conf string, ns *netns.NS, env ...string) answer {
	h.t.Helper()
	a := h.call(name, verb, conf, ns, env...)
	if a.exit != 0 {
		h.t.Fatalf("%s %s: %s%s", name, verb, a.stdout, a.stderr)
	}
	return a
}

func conf(version, typ, rest string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":"n","type":%q%s}`, version, typ, rest)
}

const (
	hostLocal = `,"ipam":{"type":"host-local","subnet":"10.6.0.0/24","dataDir":"DATA"}`
	bridged   = `,"bridge":"sbr0","isGateway":true` + hostLocal
)

func TestByItsOwnName(t *testing.T) {
	run := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		exit := standalone.Main(t.Context(), standalone.Env{
			Argv0: "weft-plugin", Args: args, Getenv: func(string) string { return "" },
			Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Version: "test",
		})
		return exit, stdout.String(), stderr.String()
	}
	if exit, out, _ := run("--list"); exit != 0 || !strings.HasPrefix(out, "bandwidth\nbridge\n") ||
		!slices.IsSorted(strings.Fields(out)) {
		t.Errorf("--list: %d %q", exit, out)
	}
	if exit, _, words := run(); exit != 0 || !strings.Contains(words, "--list") {
		t.Errorf("no argument: %d %q", exit, words)
	}
	if exit, _, words := run("bridge"); exit != 2 || !strings.Contains(words, "ln -s weft-plugin /opt/cni/bin/bridge") {
		t.Errorf("bridge: %d %q", exit, words)
	}
	if exit, _, _ := run("--nonsense"); exit != 2 {
		t.Errorf("--nonsense: %d", exit)
	}
}

func TestWithoutCommand(t *testing.T) {
	a := newHost(t).call("bridge", "", "", nil)
	if a.exit != 0 || a.stdout != "" || !strings.Contains(a.stderr, "CNI bridge plugin") ||
		!strings.Contains(a.stderr, "0.1.0, 0.2.0") {
		t.Errorf("%+v", a)
	}
}

func TestVersion(t *testing.T) {
	for _, name := range []string{"bridge", "ptp", "loopback", "host-local", "static"} {
		a := newHost(t).must(name, "VERSION", "", nil)
		if !strings.Contains(a.stdout, `"supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`) {
			t.Errorf("%s: %s", name, a.stdout)
		}
	}
}

// Invalid input is rejected with the code of the specification, and nothing is changed.
func TestRefused(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	good := conf("1.0.0", "bridge", bridged)
	before := nettest.Run(t, nil, "ip", "-o", "link")
	for name, tt := range map[string]struct {
		got   answer
		code  int
		words string
	}{
		"verb":               {h.call("bridge", "UPDATE", good, ns), 4, "UPDATE"},
		"missing variables":  {h.call("bridge", "ADD", good, nil, "CNI_IFNAME="), 4, "CNI_NETNS, CNI_IFNAME"},
		"bad container":      {h.call("bridge", "ADD", good, ns, "CNI_CONTAINERID=a b"), 4, "CNI_CONTAINERID"},
		"long interface":     {h.call("bridge", "ADD", good, ns, "CNI_IFNAME=abcdefghijklmnop"), 4, "at most 15"},
		"no JSON":            {h.call("bridge", "ADD", "{", ns), 6, ""},
		"version":            {h.call("bridge", "ADD", conf("9.0.0", "bridge", bridged), ns), 1, "9.0.0"},
		"configuration":      {h.call("bridge", "ADD", conf("1.0.0", "bridge", `,"mtu":"big"`), ns), 6, "mtu"},
		"no namespace":       {h.call("bridge", "ADD", good, nil, "CNI_NETNS=/nowhere"), 8, "/nowhere"},
		"no namespace file":  {h.call("bridge", "ADD", good, nil, "CNI_NETNS=/proc/self/status"), 8, "/proc/self/status"},
		"own namespace":      {h.call("bridge", "ADD", good, own), 8, "node itself"},
		"own namespace DEL":  {h.call("bridge", "DEL", good, own), 8, "node itself"},
		"own namespace IPAM": {h.call("host-local", "ADD", good, own), 8, "node itself"},
		"unknown IPAM": {
			h.call("bridge", "ADD", conf("1.0.0", "bridge", `,"ipam":{"type":"nobody"}`), ns), 7, "nobody",
		},
		"GC too old":         {h.call("bridge", "GC", good, nil), 1, "1.1.0"},
		"CHECK without prev": {h.call("bridge", "CHECK", good, ns), 7, "prevResult"},
	} {
		if tt.got.code() != tt.code || !strings.Contains(tt.got.stdout, tt.words) {
			t.Errorf("%s: want code %d and %q, got %s", name, tt.code, tt.words, tt.got.stdout)
		}
	}
	if left, _ := filepath.Glob(h.data + "/*/1*"); len(left) > 0 {
		t.Errorf("addresses: %v", left)
	}
	for line := range strings.Lines(nettest.Run(t, nil, "ip", "-o", "link")) {
		index, _, _ := strings.Cut(line, ":") // what the tests before have left may end meanwhile
		if !strings.HasPrefix(before, index+":") && !strings.Contains(before, "\n"+index+":") {
			t.Errorf("a link is left: %s", line)
		}
	}
}

// All verbs of an interface plugin, and the result in the form of each version.
func TestVerbs(t *testing.T) {
	for version, words := range map[string]string{
		"0.2.0": `"ip4"`, "0.3.1": `"version": "4"`, "0.4.0": `"version": "4"`, "1.0.0": `"address": "10.6.0.2/24"`,
		"1.1.0": `"address": "10.6.0.2/24"`,
	} {
		t.Run(version, func(t *testing.T) {
			h := newHost(t)
			ns := nettest.NS(t, "c1")
			c := conf(version, "bridge", bridged)
			a := h.must("bridge", "ADD", c, ns)
			if !strings.Contains(a.stdout, words) || !strings.Contains(a.stdout, `"cniVersion": "`+version+`"`) {
				t.Errorf("ADD: %s", a.stdout)
			}
			nettest.Run(t, ns, "ping", "-c1", "-W20", "10.6.0.1")
			if version >= "0.4.0" {
				prev := strings.Replace(c, "{", `{"prevResult":`+a.stdout+`,`, 1)
				h.must("bridge", "CHECK", prev, ns)
				nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
				if b := h.call("bridge", "CHECK", prev, ns); b.code() != 102 || !strings.Contains(b.stdout, "10.6.0.2") {
					t.Errorf("CHECK of a changed container: %s", b.stdout)
				}
			}
			if b := h.call("bridge", "ADD", c, ns); b.code() != 100 {
				t.Errorf("ADD again: %s", b.stdout)
			}
			if version == "1.1.0" {
				h.must("bridge", "STATUS", c, nil)
			}
			h.must("bridge", "DEL", c, ns)
			h.must("bridge", "DEL", c, nil)
			if left, _ := filepath.Glob(h.data + "/n/1*"); len(left) > 0 {
				t.Errorf("addresses: %v", left)
			}
			if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
				t.Errorf("eth0 is there after DEL: %s", out)
			}
			if left, _ := filepath.Glob(h.journal + "/*/*/*.json"); len(left) > 0 {
				t.Errorf("records: %v", left)
			}
		})
	}
}

// DEL of an address ignores an unreadable prevResult, as the reference plugin does.
func TestDelWithBadPrevResult(t *testing.T) {
	for _, prev := range []string{`{"cniVersion":"1.0.0","ips":"x"}`, `{"cniVersion":"9.0.0"}`, `"text"`, `null`} {
		for _, typ := range []string{"host-local", "bridge"} {
			h := newHost(t)
			ns := nettest.NS(t, "c1")
			good := conf("1.0.0", "bridge", bridged)
			h.must(typ, "ADD", good, ns)
			h.must(typ, "DEL", strings.Replace(good, "{", `{"prevResult":`+prev+`,`, 1), ns)
			if left, _ := filepath.Glob(h.data + "/*/1*"); len(left) > 0 {
				t.Errorf("%s, prevResult %s: addresses: %v", typ, prev, left)
			}
		}
	}
}

// DEL of a recorded attachment needs neither the same nor any configuration.
func TestDelWithAnotherConfiguration(t *testing.T) {
	good := conf("1.0.0", "bridge", bridged)
	for name, c := range map[string]string{
		"other addresses": strings.Replace(good, `"dataDir":"DATA"`, `"dataDir":"/nowhere"`, 1),
		"other options":   conf("1.1.0", "bridge", `,"bridge":"elsewhere","vlan":7`),
		"other name":      strings.Replace(good, `"name":"n"`, `"name":"renamed"`, 1),
		"no name":         strings.Replace(good, `"name":"n",`, "", 1),
		"empty":           "",
		"no JSON":         "nonsense",
	} {
		h := newHost(t)
		ns := nettest.NS(t, "c1")
		h.must("bridge", "ADD", good, ns)
		h.must("bridge", "DEL", c, ns)
		if left, _ := filepath.Glob(h.data + "/*/1*"); len(left) > 0 {
			t.Errorf("%s: addresses: %v", name, left)
		}
		if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
			t.Errorf("%s: eth0 is there after DEL: %s", name, out)
		}
		if left, _ := filepath.Glob(h.journal + "/*/*/*.json"); len(left) > 0 {
			t.Errorf("%s: records: %v", name, left)
		}
	}
	if a := newHost(t).call("bridge", "DEL", "", nil); a.code() != 6 {
		t.Errorf("nothing recorded and no configuration: %s", a.stdout)
	}
}

func TestIPAMPlugins(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	c := conf("1.1.0", "bridge", hostLocal)
	a := h.must("host-local", "ADD", c, ns)
	if !strings.Contains(a.stdout, `"address": "10.6.0.2/24"`) || strings.Contains(a.stdout, "interface") {
		t.Errorf("ADD: %s", a.stdout)
	}
	prev := strings.Replace(c, "{", `{"prevResult":`+a.stdout+`,`, 1)
	h.must("host-local", "CHECK", prev, ns)
	h.must("host-local", "STATUS", c, nil)
	if b := h.call("host-local", "ADD", c, ns); b.exit == 0 {
		t.Errorf("ADD again: %s", b.stdout)
	}
	h.must("host-local", "GC",
		strings.Replace(c, "{", `{"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}],`, 1), nil)
	h.must("host-local", "CHECK", prev, ns)
	h.must("host-local", "GC", strings.Replace(c, "{", `{"cni.dev/valid-attachments":[],`, 1), nil)
	if b := h.call("host-local", "CHECK", prev, ns); b.code() != 102 {
		t.Errorf("CHECK after GC: %s", b.stdout)
	}
	h.must("host-local", "DEL", c, nil)
	s := conf("0.2.0", "ptp", `,"ipam":{"type":"static","addresses":[{"address":"10.7.0.9/24","gateway":"10.7.0.1"}]}`)
	if a := h.must("static", "ADD", s, ns); !strings.Contains(a.stdout, `"ip": "10.7.0.9/24"`) {
		t.Errorf("static: %s", a.stdout)
	}
	h.must("static", "DEL", s, ns)
}

// An IPAM plugin that is not built in is executed, with the whole configuration.
func TestForeignIPAM(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	script := `#!/bin/sh
in=$(cat); echo "$CNI_COMMAND $in" >> ` + h.data + `/calls
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.6.0.9/24","gateway":"10.6.0.1"}]}'
echo from the pool >&2
`
	if err := os.WriteFile(h.bin+"/pool", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	c := conf("1.0.0", "ptp", `,"mine":true,"ipam":{"type":"pool","x":1}`)
	a := h.must("ptp", "ADD", c, ns)
	if !strings.Contains(a.stdout, "10.6.0.9/24") || !strings.Contains(a.stderr, "from the pool") {
		t.Errorf("ADD: %+v", a)
	}
	h.must("ptp", "DEL", c, ns)
	b, _ := os.ReadFile(h.data + "/calls")
	if got := string(b); !strings.Contains(got, `"mine":true`) || strings.Count(got, "ADD ") != 1 ||
		strings.Count(got, "DEL ") != 1 {
		t.Errorf("calls:\n%s", got)
	}
}

// The name of the executable selects the plugin, as with the reference plugins.
func TestCalledByName(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	a := h.must("ptp", "ADD", conf("1.0.0", "bridge", hostLocal), ns)
	if strings.Contains(a.stdout, "cni0") {
		t.Errorf("ADD: %s", a.stdout)
	}
	h.must("ptp", "DEL", conf("1.0.0", "bridge", hostLocal), ns)
}
