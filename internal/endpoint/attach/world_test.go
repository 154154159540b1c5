// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainParallel(m, 2)) }

// node is a node with an agent's Attacher, in the test's own namespace.
type node struct {
	*attach.Attacher
	t      testing.TB
	ledger *ledger.Ledger
	data   string // host-local's files
	bin    string // foreign plugins
	cfg    attach.Config
	n      int
}

func newNode(t testing.TB) *node {
	t.Helper()
	_, _ = nettest.Try(nil, "ip", "link", "del", "abr0")
	_, _ = nettest.Try(nil, "nft", "flush", "ruleset")
	host, err := kernel.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	reaper := kernel.NewReaper(host, log)
	n := &node{t: t, ledger: store, data: t.TempDir(), bin: t.TempDir()}
	n.cfg = attach.Config{
		Records: store, Host: host, Planners: plugin.Builtin(), Reaper: reaper, Now: time.Now, Boot: "this boot", Log: log,
		Allocators: map[string]ipam.Allocator{
			"host-local": hostlocal.New(hostlocal.Config{CallerKnows: true}), "static": static.New(),
		},
		Exec: &foreign.Runner{Env: os.Environ()}, Linger: 20 * time.Millisecond,
	}
	n.Attacher = attach.New(n.cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = reaper.Run(ctx) }()
	t.Cleanup(func() {
		n.drain()
		cancel()
		<-done
		if err := errors.Join(store.Close(), host.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) drain() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := n.Drain(ctx); err != nil {
		n.t.Error(err)
	}
}

// plugin writes a foreign plugin: a shell script that has its standard input in $in and logs its verb.
func (n *node) plugin(name, script string) {
	n.t.Helper()
	text := "#!/bin/sh\nin=$(cat)\necho \"$CNI_COMMAND $in\" >> " + n.calls(name) + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(n.bin, name), []byte(text), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) calls(name string) string { return filepath.Join(n.data, name+".calls") }

// verbs are the calls that a foreign plugin got.
func (n *node) verbs(name string) string {
	b, _ := os.ReadFile(n.calls(name))
	var out []string
	for line := range strings.Lines(string(b)) {
		verb, _, _ := strings.Cut(line, " ")
		out = append(out, verb)
	}
	return strings.Join(out, " ")
}

// passOn is a foreign plugin that prints the result before it.
const passOn = `[ "$CNI_COMMAND" = ADD ] && echo "$in" | sed 's/.*"prevResult"://; s/}$//; s/,"type":.*//'; exit 0`

const bridge = `{"type":"bridge","bridge":"abr0","isDefaultGateway":true,"ipMasq":true,"ipam":{"type":"host-local","subnet":"10.8.0.0/24","dataDir":"DATA"}}`

// list is a network of plugins; DATA in them is host-local's directory.
func (n *node) list(plugins ...string) string {
	return strings.ReplaceAll(
		fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","plugins":[%s]}`, strings.Join(plugins, ",")), "DATA", n.data,
	)
}

// job is a call for a new container, or for the one with this namespace.
func (n *node) job(conf string, id string, ns *netns.NS) attach.Job {
	n.t.Helper()
	network, err := cni.ParseNetwork([]byte(conf))
	if err != nil {
		n.t.Fatal(err)
	}
	if network, err = cni.Derive(network, nil, nil); err != nil {
		n.t.Fatal(err)
	}
	job := attach.Job{Network: network, Netns: ns, Request: model.Request{
		Network: network.Name, CNIVersion: network.CNIVersion, ContainerID: id, IfName: "eth0", CNIPath: []string{n.bin},
	}}
	if ns != nil {
		job.Request.Netns = ns.Path()
	}
	return job
}

func (n *node) pod() (string, *netns.NS) {
	n.n++
	id := fmt.Sprintf("pod%d", n.n)
	return id, nettest.NS(n.t, id)
}

func (n *node) add(job attach.Job) model.Result {
	n.t.Helper()
	result, err := n.Add(n.t.Context(), job)
	if err != nil {
		n.t.Fatalf("ADD: %v", err)
	}
	return result
}

// reserved are the addresses that host-local holds for the network.
func (n *node) reserved() []string {
	entries, _ := os.ReadDir(filepath.Join(n.data, "net"))
	var out []string
	for _, e := range entries {
		if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last_") {
			out = append(out, e.Name())
		}
	}
	return out
}

// clean checks that nothing of any attachment is left.
func (n *node) clean(what string) {
	n.t.Helper()
	n.drain()
	if got := n.reserved(); len(got) > 0 {
		n.t.Errorf("%s: addresses left: %v", what, got)
	}
	if list, err := n.ledger.List(); err != nil || len(list) > 0 {
		n.t.Errorf("%s: records left: %d %v", what, len(list), err)
	}
	if out := nettest.Run(n.t, nil, "ip", "-o", "link"); strings.Count(out, "\n") != 1 {
		n.t.Errorf("%s: links left:\n%s", what, out)
	}
	if out := nettest.Run(n.t, nil, "nft", "list", "ruleset"); out != "" {
		n.t.Errorf("%s: nft left:\n%s", what, out)
	}
}

func wantCode(t testing.TB, what string, err error, code model.Code, words ...string) {
	t.Helper()
	var f *model.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("%s: want code %d, got %v", what, code, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q is missing in: %v", what, w, err)
		}
	}
}

// diff compares results as text.
func diff(a, b model.Result) string {
	text := func(r model.Result) string {
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	return cmp.Diff(text(a), text(b))
}
