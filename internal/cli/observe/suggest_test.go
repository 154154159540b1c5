// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// world are pods with addresses and labels.
func world() map[string]model.Pod {
	pod := func(namespace, name, addr string, labels map[string]string) model.Pod {
		return model.Pod{
			Namespace: namespace, Name: name, UID: name, Node: "node1", Phase: "Running", Labels: labels,
			IPs: []netip.Addr{netip.MustParseAddr(addr)},
		}
	}
	all := map[string]model.Pod{}
	for _, p := range []model.Pod{
		pod("shop", "web-1", "10.42.1.1", map[string]string{"app": "web", "pod-template-hash": "1"}),
		pod("shop", "web-2", "10.42.1.2", map[string]string{"app": "web", "pod-template-hash": "2"}),
		pod("shop", "db", "10.42.1.3", map[string]string{"app": "db"}),
		pod("shop", "other", "10.42.1.4", map[string]string{"app": "other"}),
		pod("dns", "dns", "10.42.1.5", map[string]string{"k8s-app": "kube-dns"}),
	} {
		all[p.Namespace+"/"+p.Name] = p
	}
	return all
}

// seen is a connection of the world; an end without a slash is an address outside.
func seen(from, to string, port uint16, protocol string) flow.Record {
	end := func(name string, port uint16) flow.Endpoint {
		p, ok := world()[name]
		if !ok {
			return flow.Endpoint{Addr: netip.MustParseAddr(name), Port: port, Identity: flow.Identity{Kind: flow.OutsideEnd}}
		}
		return flow.Endpoint{Addr: p.IPs[0], Port: port, Identity: flow.Identity{Kind: flow.PodEnd, Name: name, Node: p.Node}}
	}
	return flow.Record{
		Kind: flow.New, Protocol: protocol, Verdict: flow.Allowed, From: end(from, 40000), To: end(to, port),
	}
}

// The suggested policies allow what was seen, also of other pods of the same workloads, and nothing else to or from these.
func TestSuggestedPolicies(t *testing.T) {
	s := flow.NewSuggestion(func(pod string) map[string]string { return world()[pod].Labels })
	for _, r := range []flow.Record{
		seen("shop/web-1", "shop/db", 5432, "tcp"),
		seen("shop/web-1", "dns/dns", 53, "udp"),
		seen("192.0.2.9", "shop/web-1", 443, "tcp"),
		seen("shop/web-1", "shop/db", 0, "icmp"),
	} {
		s.Add(r)
	}
	policies, notes := s.Policies()
	if len(notes) != 1 || !strings.Contains(notes[0], "1 flows of icmp") {
		t.Errorf("notes %q", notes)
	}
	x := policy.New(policy.Config{Node: "node0"})
	for _, p := range world() {
		x.SetPod(p)
	}
	for _, name := range []string{"shop", "dns"} {
		x.SetNamespace(model.Namespace{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}})
	}
	var names []string
	for _, p := range policies {
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		o, err := store.NewObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		read, err := o.Policy()
		if err != nil || len(read.Errors) > 0 {
			t.Fatalf("%s: %v, %v", raw, err, read.Errors)
		}
		x.SetPolicy(read)
		names = append(names, o.Key.Namespace+"/"+o.Key.Name)
	}
	if want := []string{"dns/observed-kube-dns", "shop/observed-db", "shop/observed-web"}; !slices.Equal(names, want) {
		t.Errorf("policies %q, want %q", names, want)
	}
	for _, c := range []struct {
		r    flow.Record
		want bool
	}{
		{seen("shop/web-1", "shop/db", 5432, "tcp"), true},
		{seen("shop/web-2", "shop/db", 5432, "tcp"), true},
		{seen("shop/web-2", "dns/dns", 53, "udp"), true},
		{seen("192.0.2.9", "shop/web-2", 443, "tcp"), true},
		{seen("192.0.2.10", "shop/web-2", 443, "tcp"), false},
		{seen("shop/web-1", "shop/db", 5433, "tcp"), false},
		{seen("shop/web-1", "dns/dns", 53, "tcp"), false},
		{seen("shop/other", "shop/db", 5432, "tcp"), false},
		{seen("shop/db", "shop/web-1", 443, "tcp"), false},
		{seen("shop/db", "shop/other", 443, "tcp"), true}, // nothing was seen of db's egress
		{seen("shop/web-1", "192.0.2.9", 443, "tcp"), false},
	} {
		all, err := x.Why(policy.Query{
			From: policy.ConnectionEnd{Addr: c.r.From.Addr}, To: policy.ConnectionEnd{Addr: c.r.To.Addr},
			Protocol: model.Protocol(strings.ToUpper(c.r.Protocol)), Port: c.r.To.Port,
		})
		if err != nil {
			t.Fatal(err)
		}
		if all[0].Allowed != c.want {
			t.Errorf("%s to %s port %d/%s: allowed %t", c.r.From.Addr, c.r.To.Addr, c.r.To.Port, c.r.Protocol, all[0].Allowed)
		}
	}
}

// Policies and rates are printed of the flows that the filters select.
func TestSums(t *testing.T) {
	nodes := shop()
	ping := *nodes["node2"][3].Flow
	ping.Protocol, ping.To.Port, ping.From.Port = "icmp", 0, 0
	nodes["node2"] = append(nodes["node2"], flow.Line{Flow: &ping})
	dir := lab(t, nodes)
	out, errs, err := run(dir, "--suggest-policy")
	if err != nil || strings.Count(out, "kind: NetworkPolicy") != 2 || !strings.Contains(out, "port: 5432") ||
		strings.Contains(out, "192.0.2.9") {
		t.Errorf("%v %s: %s", err, errs, out)
	}
	out, _, err = run(dir, "--suggest-policy", "--verdict", "denied")
	if err != nil || !strings.Contains(out, "cidr: 192.0.2.9/32") || strings.Contains(out, "5432") {
		t.Errorf("%v: %s", err, out)
	}
	out, _, err = run(dir, "--rate")
	var got []string
	for line := range strings.Lines(out) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"FROM TO PORT VERDICT FLOWS PACKETS BYTES",
		"192.0.2.9 shop/db icmp denied 1 - -",
		"192.0.2.9 shop/db 22/tcp denied 1 - -",
		"shop/web shop/db 5432/tcp allowed 1 - -",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %q", err, got)
	}
	out, _, err = run(dir, "--last", "1", "-o", "jsonl")
	if err != nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, `"node":"node2"`) {
		t.Errorf("%v: %s", err, out)
	}
	if _, _, err = run(dir, "--since", "yesterday"); err == nil || !strings.Contains(err.Error(), "5m") {
		t.Errorf("%v", err)
	}
}

// TestNothingKept: a node that keeps no flows of the past is named; where none does, the command fails.
func TestNothingKept(t *testing.T) {
	nodes := shop()
	off := func(node string) {
		begin := *nodes[node][0].Begin
		begin.Level = flow.LevelOff
		nodes[node] = []flow.Line{{Begin: &begin}, {Known: true}}
	}
	off("node1")
	out, errs, err := run(lab(t, nodes), "--since", "2026-01-02T03:04:00Z")
	if err != nil || !strings.Contains(errs, "node node1 keeps no flows") || !strings.Contains(out, "denied") {
		t.Errorf("one node: %v, %s: %s", err, errs, out)
	}
	off("node2")
	dir := lab(t, nodes)
	for _, output := range []string{"compact", "json"} {
		out, errs, err = run(dir, "--since", "5m", "-o", output)
		if err == nil || !strings.Contains(err.Error(), "no node that has answered keeps flows") || !strings.Contains(errs, "node node2") || out != "" {
			t.Errorf("no node, %s: %v, %s: %s", output, err, errs, out)
		}
	}
	if _, errs, err = run(dir, "--since", "5m", "--duration", "100ms"); err != nil {
		t.Errorf("what follows is observed: %v, %s", err, errs)
	}
}
