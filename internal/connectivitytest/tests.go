// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/model"
)

// test is a category.
type test struct {
	name, about string
	// exclusive: no other test runs meanwhile.
	exclusive bool
	run       func(ctx context.Context, s *Suite, r *recorder) error
}

// About describes a test.
type About struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// List returns all tests.
func List() []About {
	var out []About
	for _, t := range tests() {
		out = append(out, About{t.name, t.about})
	}
	return out
}

func tests() []test {
	return []test{
		{name: "pods", about: "pods reach pods on the same and on the other node, by TCP, UDP and ICMP", run: testPods},
		{name: "nodes", about: "pods reach their own and the other node, nodes reach pods and nodes", run: testNodes},
		{
			name:  "mtu",
			about: "packets of the MTU and one byte less arrive, larger ones do not leave; 1 MB by TCP, fragments by UDP",
			run:   testMTU,
		},
		{name: "source-guard", about: "packets with the address of another pod do not arrive", run: testSourceGuard},
		{name: "host-ports", about: "a port of a node leads to its pod, from pods and nodes", run: testHostPorts},
		{
			name:  "services",
			about: "cluster IPs and node ports lead to pods, also from the pod itself (hairpin)",
			run:   testServices,
		},
		{name: "dns", about: "pods resolve the name of a Service", run: testDNS},
		{name: "networks", about: "pods reach each other in a further network", run: testNetworks},
		{
			name:  "vms",
			about: "pods reach the VMs that run (only with --vms) and new ones (--boot-vms), and VMs migrate",
			run:   testVMs,
		},
		{name: "policies", about: "NetworkPolicies, also random ones, let pass what they allow, and nothing else", run: testPolicies},
		{name: "external", about: "pods reach a host outside (only with --external)", run: testExternal},
		{
			name:      "agent",
			about:     "connections survive the replacement of an agent (only with --disruptive)",
			exclusive: true,
			run:       testAgent,
		},
		{name: "health", about: "the agents have no findings after the tests", exclusive: true, run: testHealth},
	}
}

// run runs a test.
func (s *Suite) run(ctx context.Context, t test) TestResult {
	begun := time.Now()
	r := recorder{s: s, result: TestResult{Name: t.name, Rows: []Row{}}}
	if err := t.run(ctx, s, &r); err != nil {
		r.result.Error = err.Error()
	}
	r.result.Millis = time.Since(begun).Milliseconds()
	return r.result
}

// pairs returns the letters of nodes between which is tested.
func (f *fixture) pairs() [][2]string {
	if len(f.nodes) == 1 {
		return [][2]string{{"a", "a"}}
	}
	return [][2]string{{"a", "a"}, {"a", "b"}, {"b", "a"}}
}

// betweenNodes records that nothing is tested between nodes if the cluster has only one.
func (r *recorder) betweenNodes() {
	if len(r.s.nodes) == 1 {
		r.skip("between nodes: the cluster has one node")
	}
}

func testPods(ctx context.Context, s *Suite, r *recorder) error {
	r.betweenNodes()
	var checks []check
	for _, p := range s.pairs() {
		checks = append(
			checks,
			s.checks("client-"+p[0], s.podTarget("server-"+p[1]), false, probe.TCP, probe.UDP, probe.ICMP)...)
	}
	r.expect(ctx, checks...)
	// The address that the server sees is the pod's own: there is no NAT between pods.
	for i, c := range checks {
		row := &r.result.Rows[i]
		if !row.OK || row.Result.Source == "" {
			continue
		}
		host, _, _ := net.SplitHostPort(row.Result.Source)
		if seen, err := netip.ParseAddr(host); err != nil || !slices.Contains(s.addrs(c.from), seen.Unmap()) {
			row.OK, row.Error = false, fmt.Sprintf("the server saw %s, which is not the address of %s",
				row.Result.Source, c.from)
		}
	}
	return nil
}

// nodeTarget is a node, at the addresses of its pod in the node's network.
func (f *fixture) nodeTarget(letter string) target {
	return target{
		label: "node " + f.at(
			letter,
		),
		explain: f.at(letter),
		addrs:   f.addrs("host-" + letter),
		port:    nodePort,
		server:  "host-" + letter,
	}
}

func testNodes(ctx context.Context, s *Suite, r *recorder) error {
	r.betweenNodes()
	var checks []check
	for _, p := range s.pairs() {
		checks = append(checks, s.checks("client-"+p[0], s.nodeTarget(p[1]), false, probe.TCP, probe.UDP, probe.ICMP)...)
		for _, c := range s.checks("host-"+p[0], s.podTarget("server-"+p[1]), false, probe.TCP, probe.UDP, probe.ICMP) {
			c.about.From = s.at(p[0])
			checks = append(checks, c)
		}
		if p[0] != p[1] {
			for _, c := range s.checks("host-"+p[0], s.nodeTarget(p[1]), false, probe.TCP, probe.ICMP) {
				c.about.From = s.at(p[0])
				checks = append(checks, c)
			}
		}
	}
	r.expect(ctx, checks...)
	return nil
}

func testMTU(ctx context.Context, s *Suite, r *recorder) error {
	r.betweenNodes()
	var checks []check
	for _, p := range s.pairs() {
		checks = append(
			checks,
			s.checks("client-"+p[0], s.podTarget("server-"+p[1]), false, probe.MTU, probe.Transfer, probe.Fragments)...)
	}
	r.expect(ctx, checks...)
	return nil
}

// testSourceGuard sends with the address of another pod of the sender's node. The same packets with the sender's own address
// arrive, or the test would show nothing.
func testSourceGuard(ctx context.Context, s *Suite, r *recorder) error {
	var checks []check
	for _, p := range s.pairs() {
		from, to, victim := "client-"+p[0], s.podTarget("server-"+p[1]), "server-"+p[0]
		for _, c := range s.checks(from, to, false, probe.Spoof) {
			c.probe.Millis, c.about = 5000, Question{}
			v6 := strings.HasPrefix(c.probe.To, "[")
			c.probe.From = family(s.addrs(from), v6).String()
			own := c
			own.name = strings.Replace(c.name, "spoof", "own address", 1)
			c.name = strings.Replace(c.name, "spoof", "with the address of "+victim, 1)
			c.probe.From, c.deny = family(s.addrs(victim), v6).String(), true
			checks = append(checks, own, c)
		}
	}
	r.expect(ctx, checks...)
	return nil
}

func family(all []netip.Addr, six bool) netip.Addr {
	for _, a := range all {
		if a.Is6() == six {
			return a
		}
	}
	return netip.Addr{}
}

func testHostPorts(ctx context.Context, s *Suite, r *recorder) error {
	to := s.nodeTarget("b")
	to.port, to.server, to.label = hostPort, "hostport-b", fmt.Sprintf("port %d of %s", hostPort, to.label)
	var checks []check
	for _, from := range []string{"client-a", "host-a"} {
		checks = append(checks, s.checks(from, to, false, probe.TCP)...)
	}
	r.expect(ctx, checks...)
	return nil
}

func testServices(ctx context.Context, s *Suite, r *recorder) error {
	if s.cluster.Lab() {
		r.skip("a lab has no proxy of Services")
		return nil
	}
	if err := s.create(ctx, store.Services(), serviceManifest(s.namespace, "servers", "NodePort", "server")); err != nil {
		return err
	}
	service, err := s.service(ctx, "servers")
	if err != nil {
		return err
	}
	cluster := target{label: "the cluster IP", explain: s.namespace + "/servers", addrs: service.addrs, port: servicePort}
	var checks []check
	for _, p := range s.pairs() {
		checks = append(checks, s.checks("client-"+p[0], cluster, false, probe.TCP, probe.UDP)...)
		node := s.nodeTarget(p[1])
		node.port, node.server, node.label = service.nodePort, "", fmt.Sprintf("node port of %s", s.at(p[1]))
		node.addrs = withFamilies(node.addrs, service.addrs)
		checks = append(checks, s.checks("client-"+p[0], node, false, probe.TCP)...)
	}
	checks = append(checks, s.checks("server-a", cluster, false, probe.TCP)...) // to itself, in one of two
	r.expect(ctx, checks...)
	return nil
}

// withFamilies returns the addresses whose family one of the others has.
func withFamilies(addrs, others []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if family(others, a.Is6()).IsValid() {
			out = append(out, a)
		}
	}
	return out
}

type serviceAddrs struct {
	addrs    []netip.Addr
	nodePort uint16
}

// service reads the addresses that a Service was assigned.
func (f *fixture) service(ctx context.Context, name string) (out serviceAddrs, err error) {
	o, err := f.cluster.Objects().Get(ctx, store.Services(), store.Services().Key(f.namespace, name))
	if err != nil {
		return out, err
	}
	var fields struct {
		Spec struct {
			ClusterIPs []string
			Ports      []struct {
				Protocol string
				NodePort uint16
			}
		}
	}
	if err := json.Unmarshal(o.Raw, &fields); err != nil {
		return out, fmt.Errorf("service %s: %w", name, err)
	}
	for _, text := range fields.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			out.addrs = append(out.addrs, a)
		}
	}
	for _, p := range fields.Spec.Ports {
		if p.Protocol == "TCP" {
			out.nodePort = p.NodePort
		}
	}
	return out, nil
}

func testDNS(ctx context.Context, s *Suite, r *recorder) error {
	if s.cluster.Lab() {
		r.skip("a lab has no DNS server")
		return nil
	}
	if _, err := s.cluster.Objects().Get(ctx, store.Services(),
		store.Services().Key("kube-system", "kube-dns")); err != nil {
		r.skip("no Service kube-system/kube-dns: %v", err)
		return nil
	}
	var checks []check
	for _, p := range s.pairs() {
		if p[0] != p[1] || len(s.nodes) == 1 {
			checks = append(checks, check{
				name: "client-" + p[0] + " resolves kubernetes.default", from: "client-" + p[0],
				probe: probe.Probe{Kind: probe.DNS, To: "kubernetes.default", Millis: 5000},
				about: Question{From: s.full("client-" + p[0]), To: "kube-system/kube-dns", Port: 53, Protocol: model.UDP},
			})
		}
	}
	r.expect(ctx, checks...)
	return nil
}

// testNetworks attaches two pods of a node to a bridge, and compares with the status that they have.
func testNetworks(ctx context.Context, s *Suite, r *recorder) error {
	id := strings.TrimPrefix(s.namespace, Prefix)
	if err := s.create(ctx, store.NetworkAttachments(), networkManifest(s.namespace, "wct"+id)); err != nil {
		r.skip("NetworkAttachmentDefinitions: %v", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	pods := []podSpec{
		{namespace: s.namespace, name: "network-1", node: s.at("a"), networks: networkName},
		{namespace: s.namespace, name: "network-2", node: s.at("a"), networks: networkName},
	}
	if err := s.startPods(ctx, pods); err != nil {
		return err
	}
	to := s.podTarget("network-2")
	if to.addrs = s.networkAddrs("network-2", networkName); len(to.addrs) == 0 {
		return fmt.Errorf(
			"pod %s has no address in network %s: its annotation k8s.v1.cni.cncf.io/network-status does not name it",
			s.full("network-2"),
			networkName,
		)
	}
	to.label += " in network " + networkName
	checks := s.checks("network-1", to, false, probe.TCP, probe.UDP, probe.ICMP)
	for _, addr := range to.addrs { // also of families that the cluster's network does not have
		if !s.hasFamily("network-1", addr) {
			checks = append(checks, check{
				name: "network-1 to " + to.label + ", tcp", from: "network-1", server: to.server,
				probe: probe.Probe{
					Kind:   probe.TCP,
					To:     net.JoinHostPort(addr.String(), strconv.Itoa(serverPort)),
					Millis: int(answerTime.Milliseconds()),
				},
			})
		}
	}
	for i := range checks {
		checks[i].about = Question{}
	}
	r.expect(ctx, checks...)
	return nil
}

// networkAddrs returns the addresses of a pod in a further network.
func (f *fixture) networkAddrs(pod, network string) []netip.Addr {
	f.mu.Lock()
	text := f.pods[f.full(pod)].Annotations["k8s.v1.cni.cncf.io/network-status"]
	f.mu.Unlock()
	var all []struct {
		Name string
		IPs  []string
	}
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	var out []netip.Addr
	for _, n := range all {
		for _, ip := range n.IPs {
			if a, err := netip.ParseAddr(ip); err == nil && (n.Name == network || n.Name == f.namespace+"/"+network) {
				out = append(out, a)
			}
		}
	}
	return out
}

func testExternal(ctx context.Context, s *Suite, r *recorder) error {
	if s.External == "" {
		r.skip("not asked for: --external HOST:PORT")
		return nil
	}
	var checks []check
	for _, p := range s.pairs() {
		if p[0] != p[1] || len(s.nodes) == 1 {
			checks = append(checks, check{
				name: "client-" + p[0] + " connects to " + s.External, from: "client-" + p[0],
				probe: probe.Probe{Kind: probe.Connect, To: s.External, Millis: 5000},
			})
		}
	}
	r.expect(ctx, checks...)
	return nil
}

// flowTime is how long connections last while an agent is replaced, at least.
const flowTime = 20 * time.Second

func testAgent(ctx context.Context, s *Suite, r *recorder) error {
	if !s.Disruptive {
		r.skip("not asked for: --disruptive")
		return nil
	}
	if s.cluster.Lab() {
		r.skip("nothing replaces an agent of a lab")
		return nil
	}
	replaced := make(chan error, 1)
	go func() {
		select {
		case <-ctx.Done():
			replaced <- ctx.Err()
		case <-time.After(time.Second): // connections are up
			replaced <- s.cluster.ReplaceAgent(ctx, s.at("a"))
		}
	}()
	var checks []check
	for _, p := range s.pairs() {
		for _, c := range s.checks("client-"+p[0], s.podTarget("server-"+p[1]), false, probe.Flow) {
			c.probe.Millis, c.about = int(flowTime.Milliseconds()), Question{}
			checks = append(checks, c)
		}
	}
	r.expectWithin(ctx, 0, checks...) // once: the agent is replaced once
	if err := <-replaced; err != nil {
		return fmt.Errorf("agent of %s: %w", s.at("a"), err)
	}
	return nil
}

func testHealth(ctx context.Context, s *Suite, r *recorder) error {
	found, err := s.cluster.Findings(ctx)
	if err != nil {
		return err
	}
	row := Row{Name: "agents", OK: len(found) == 0, Attempts: 1, Error: strings.Join(found, "; ")}
	r.result.Rows = append(r.result.Rows, row)
	return nil
}
