// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni/wire"
)

const own = `{"cniVersion":"1.0.0","name":"weft","plugins":[{"type":"weft-cni","delegates":[{"cniVersion":"1.0.0","name":"weft",` +
	`"plugins":[{"type":"ptp","ipam":{"type":"host-local"}},{"type":"theirs","token":"s3cret"}]}]}]}`

// world is a node without problems.
type world struct {
	t    *testing.T
	node Node
	dir  string
	// notReady is the response of /readyz; empty if the agent is ready.
	notReady string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "doctor")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, dir: dir}
	c := config.Default()
	c.Socket, c.StateDir = filepath.Join(dir, "agent.sock"), dir
	c.Network.Mode = config.ModeCluster
	c.Install = config.Install{ConfDir: filepath.Join(dir, "net.d"), BinDir: "/bin"}
	w.node = Node{Config: c, AgentAnswers: true, Root: filepath.Join(dir, "root"), NodeRoot: filepath.Join(dir, "host")}
	w.write("net.d/00-weft.conflist", own, 0o644)
	w.write("net.d/10-a.conflist", `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge"}]}`, 0o644)
	w.write("net.d/note.txt", "{", 0o644)
	for _, name := range []string{"weft-cni", "weft-plugin", "theirs"} {
		w.write("host/bin/"+name, "program", 0o755)
	}
	if err := os.Symlink("/bin/weft-plugin", filepath.Join(dir, "host/bin/loopback")); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "2", "netfilter/nf_conntrack_count": "7",
		"netfilter/nf_conntrack_max": "1000",
	} {
		w.write("root/proc/sys/net/"+name, value+"\n", 0o644)
	}
	w.pong()
	web := httptest.NewServer(http.HandlerFunc(func(r http.ResponseWriter, _ *http.Request) {
		if w.notReady != "" {
			http.Error(r, w.notReady, http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(web.Close)
	w.node.Config.Metrics.Address = strings.TrimPrefix(web.URL, "http://")
	return w
}

// pong answers liveness probes as the agent does.
func (w *world) pong() {
	l, err := net.Listen("unix", wire.PingSocket(w.node.Config.Socket))
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(make([]byte, wire.AnswerHeader))
			_ = conn.Close()
		}
	}()
	w.t.Cleanup(func() { _ = l.Close(); <-done })
}

func (w *world) write(name, text string, mode os.FileMode) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		w.t.Fatal(err)
	}
}

// writeState writes the files of the agent's state directory that the checks read.
func (w *world) writeState() {
	w.write("calico-policies.json", "[]", 0o600)
	w.write("blocks/blocks.json", `{"version":1,"node":"n1","blocks":[]}`, 0o600)
	w.write("mesh.json", `{"self":"n1","topology":{}}`, 0o644)
	w.node.Config.Kubernetes.InCluster = true
}

func (w *world) remove(name string) {
	if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// problems returns the findings of level warn and bad, as lines.
func (w *world) problems() []string {
	var out []string
	for _, f := range Examine(w.t.Context(), w.node) {
		if f.Level != Good && f.Level != Skip {
			says := strings.ReplaceAll(strings.ReplaceAll(f.Message, w.dir, "DIR"), w.node.Config.Metrics.Address, "ADDRESS")
			out = append(out, string(f.Level)+" "+f.Check+": "+says)
		}
	}
	return out
}

func TestNoProblems(t *testing.T) {
	w := newWorld(t)
	all := Examine(t.Context(), w.node)
	if problems := w.problems(); problems != nil || len(all) != len(checks()) || Worst(all) != Good {
		t.Errorf("%q, %+v", problems, all)
	}
}

// TestProblems checks that each problem is found, and nothing else.
func TestProblems(t *testing.T) {
	for name, x := range map[string]struct {
		do   func(w *world)
		want []string
	}{
		"no agent": {
			func(w *world) { w.node.Config.Socket = "/none/agent.sock" },
			[]string{
				"bad agent: no agent at /none/agent.sock: dial unix /none/agent.sock" + wire.PingSuffix +
					": connect: no such file or directory",
			},
		},
		"not ready": {
			func(w *world) { w.notReady = "network configuration: no prefix" },
			[]string{"bad ready: the agent is not ready: network configuration: no prefix"},
		},
		"queue": {
			func(w *world) {
				w.write("queue/1"+wire.QueueSuffix, queuedDEL("c1", "eth0"), 0o600)
				old := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				if err := os.Chtimes(filepath.Join(w.dir, "queue/1"+wire.QueueSuffix), old, old); err != nil {
					w.t.Fatal(err)
				}
				w.write("queue/2"+wire.BadSuffix, "", 0o600)
			},
			[]string{
				`warn queue: 1 queued DELs in DIR/queue: eth0 of container c1, network "net", since 2026-01-02T03:04:05Z (1.del)`,
				"warn queue: 1 queued DELs in DIR/queue cannot be read (" + wire.BadSuffix + ")",
			},
		},
		"no program": {
			func(w *world) { w.remove("host/bin/weft-cni") },
			[]string{"bad programs: plugin weft-cni is missing: lstat DIR/host/bin/weft-cni: no such file or directory"},
		},
		"link to nothing": {
			func(w *world) { w.remove("host/bin/weft-plugin") },
			[]string{"bad programs: plugin loopback is missing: stat DIR/host/bin/weft-plugin: no such file or directory"},
		},
		"empty program": {
			func(w *world) { w.write("host/bin/theirs", "", 0o755) },
			[]string{"bad programs: plugin theirs is empty: DIR/host/bin/theirs"},
		},
		"bad file": {
			func(w *world) { w.write("net.d/20-b.conf", "{", 0o644) },
			[]string{"bad configuration: DIR/net.d/20-b.conf: network configuration: unexpected end of JSON input"},
		},
		"another vendor's file first": {
			func(w *world) {
				w.write("net.d/00-a.conflist", `{"cniVersion":"1.0.0","name":"first","plugins":[{"type":"theirs"}]}`, 0o644)
			},
			[]string{`bad configuration: DIR/net.d/00-a.conflist comes before weft's: pods get "first" without weft`},
		},
		"no configuration": {
			func(w *world) { w.remove("net.d/00-weft.conflist"); w.remove("net.d/10-a.conflist") },
			[]string{"bad configuration: DIR/net.d has no configuration"},
		},
		"no forwarding": {
			func(w *world) { w.write("root/proc/sys/net/ipv4/ip_forward", "0\n", 0o644) },
			[]string{"warn kernel: net.ipv4.ip_forward is 0"},
		},
		"strict": {
			func(w *world) { w.write("root/proc/sys/net/ipv4/conf/all/rp_filter", "1\n", 0o644) },
			[]string{"warn kernel: net.ipv4.conf.all.rp_filter is 1"},
		},
		"connections": {
			func(w *world) { w.write("root/proc/sys/net/netfilter/nf_conntrack_count", "950\n", 0o644) },
			[]string{"warn kernel: conntrack has 950 of 1000 entries: when it is full, new connections are dropped"},
		},
		"all connections": {
			func(w *world) { w.write("root/proc/sys/net/netfilter/nf_conntrack_count", "1000\n", 0o644) },
			[]string{"bad kernel: conntrack has 1000 of 1000 entries: new connections are dropped"},
		},
		"Calico's policies": {
			func(w *world) {
				w.write("calico-policies.json", `["GlobalNetworkPolicy deny-all","NetworkPolicy shop/allow-db"]`, 0o600)
			},
			[]string{
				"warn policies: weft does not enforce these objects of Calico, or only in part: " +
					"2 (GlobalNetworkPolicy deny-all, NetworkPolicy shop/allow-db)",
			},
		},
		"no runtime": {
			func(w *world) { w.node.Config.Runtime.Endpoint = "unix:///none/cri.sock" },
			[]string{
				`warn runtime: CRI socket /none/cri.sock: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /none/cri.sock: connect: no such file or directory"`,
			},
		},
		"mesh": {
			func(w *world) {
				w.node.Config.Kubernetes.InCluster = true
				w.write(
					"mesh.json",
					`{"self":"n1","error":"it broke","topology":{"problems":[{"nodes":["n2"],"message":"n2 has no address"}]}}`, 0o644,
				)
			},
			[]string{"bad mesh: it broke", "warn mesh: n2 has no address"},
		},
		"name": {
			func(w *world) {
				w.write("blocks/blocks.json", `{"version":1,"node":"n1","blocks":[],"strangers":["0123456789abcdef"]}`, 0o600)
			},
			[]string{"bad name: another host has claimed addresses with this node's name: 0123456789abcdef"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			x.do(w)
			if diff := cmp.Diff(x.want, w.problems()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBundle checks that each part is in the bundle, or the error of a part that failed, and that no secret is.
func TestBundle(t *testing.T) {
	w := newWorld(t)
	w.write("host/usr/bin/nft", "#!/bin/sh\n", 0o755) // it has no shell
	var out bytes.Buffer
	if err := Bundle(t.Context(), w.node, "v1", time.Unix(1_700_000_000, 0), &out); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(b)
	}
	for name, part := range map[string]string{
		"weft/about.txt": "weft v1\n2023-11-14T22:13:20Z\n", "weft/doctor.json": `"check": "agent"`,
		"weft/configuration.json":     `"mode": "cluster"`,
		"weft/net.d/00-weft.conflist": `"token":"(left out)"`, "weft/proc/sys/net/ipv4/ip_forward": "1\n",
		"weft/nft.txt.error":   "[nft -s list ruleset]: ",
		"weft/links.txt.error": "the node has no program ip", "weft/metrics.txt": "",
	} {
		text, ok := files[name]
		if !ok || !strings.Contains(text, part) {
			t.Errorf("%s: %q", name, text)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s has the secret", name)
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		`{"token": "a\"b", "x": 1}`:   `{"token": "(left out)", "x": 1}`,
		`{"wgPSK":"x"}`:               `{"wgPSK":"(left out)"}`,
		`{"privateKey":["a"]}`:        `{"privateKey":"(left out)"]}`,
		"password: hunter2\nuser: me": "password: \"(left out)\"\nuser: me",
		`{"tokenFile": "/x"}`:         `{"tokenFile": "/x"}`,
		`{"name":"token"}`:            `{"name":"token"}`,
	} {
		if got := string(Redact([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// queuedDEL returns a file of the queue as weft-cni writes it.
func queuedDEL(id, ifName string) string {
	const conf = `{"cniVersion":"1.0.0","name":"net","type":"weft-cni"}`
	env := []string{"CNI_COMMAND=DEL", "CNI_CONTAINERID=" + id, "CNI_IFNAME=" + ifName, "CNI_PATH=/opt/cni/bin"}
	b := wire.AppendEnv(make([]byte, wire.RequestHeader), env)
	wire.Header{Env: len(b) - wire.RequestHeader, Conf: len(conf)}.Put(b)
	return string(append(b, conf...))
}

// TestLegacyIPTables checks the warning about a legacy filter table that no program can list, for each family.
func TestLegacyIPTables(t *testing.T) {
	w := newWorld(t)
	before := len(w.problems())
	w.write("root/proc/net/ip_tables_names", "nat\n", 0o644)
	if now := w.problems(); len(now) != before {
		t.Errorf("without a filter table: %q", now)
	}
	w.write("root/proc/net/ip_tables_names", "nat\nfilter\n", 0o644)
	w.write("root/proc/net/ip6_tables_names", "filter\n", 0o644)
	want := func(programs ...string) {
		t.Helper()
		var got []string
		for _, line := range w.problems() {
			if rest, is := strings.CutPrefix(line, "warn iptables: "); is {
				program, _, _ := strings.Cut(rest, " ")
				got = append(got, program)
			}
		}
		if !slices.Equal(got, programs) {
			t.Errorf("warned about %q, want %q", got, programs)
		}
	}
	want("iptables", "ip6tables")
	w.write("host/usr/sbin/iptables-legacy-save", "program", 0o755)
	want("ip6tables")
	w.write("host/usr/sbin/ip6tables-legacy-save", "program", 0o755)
	want()
}

// TestWithin: checks that are not finished when the time is over are not waited for, and are not good.
func TestWithin(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all := Within(ctx, w.node, "agent")
	if len(all) < len(checks())-1 {
		t.Errorf("%d findings of %d checks", len(all), len(checks()))
	}
	for _, f := range all {
		if f.Check == "agent" {
			t.Errorf("left out: %+v", f)
		}
	}
	if got := Within(t.Context(), w.node); !slices.Equal(got, Examine(t.Context(), w.node)) {
		t.Errorf("with time: %+v", got)
	}
}

// TestHangingCheck: a check that hangs is a finding of level skip.
func TestHangingCheck(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := within(ctx, Node{}, []check{
		{"disk", "", func(context.Context, Node) []Finding { <-hang; return nil }},
		{"queue", "empty", func(context.Context, Node) []Finding { return nil }},
	})
	want := []Finding{
		{Check: "disk", Level: Skip, Message: "not checked: the time ran out"}, {Check: "queue", Level: Good, Message: "empty"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
