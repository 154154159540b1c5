// SPDX-License-Identifier: Apache-2.0

package observer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/observer"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// loadVariable has the number of flows that this program makes in the place of tests, as a process of its own.
const loadVariable = "WEFT_TEST_FLOWS"

// The load: flows a second, in bursts.
const loadRate, loadBurst = 10000, 10

// load makes flows from the namespace's address, each from another port.
func load(flows string) error {
	count := 0
	if _, err := fmt.Sscan(flows, &count); err != nil {
		return err
	}
	began := time.Now()
	for made := 0; made < count; made++ {
		if made%loadBurst == 0 {
			time.Sleep(time.Until(began.Add(time.Duration(made) * time.Second / loadRate)))
		}
		c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(10, 42, 1, 2), Port: 2000 + made%60000}}).Dial("udp", "10.42.1.3:80")
		if err != nil {
			return err
		}
		_, _ = c.Write([]byte("x"))
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// compiledPolicies decide by the compiler of this node's policies, as the agent's do.
type compiledPolicies struct{ index *compiled.Index }

func newCompiledPolicies() compiledPolicies {
	x := compiled.New(compiled.Config{Node: "node1"})
	x.SetNamespace(model.Namespace{Name: "shop", Labels: map[string]string{"kubernetes.io/metadata.name": "shop"}})
	for name, addr := range map[string]string{"web": "10.42.1.2", "db": "10.42.1.3"} {
		pod := model.PodRef{Namespace: "shop", Name: name, UID: name}
		x.SetPod(model.Pod{Namespace: "shop", Name: name, UID: name, Node: "node1"})
		x.SetEndpoint(model.WorkloadEndpoint{
			Node: "node1", Attachment: model.AttachmentKey{Network: "weft", ContainerID: name, IfName: "eth0"}, Pod: pod, IfName: "eth0",
			Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		})
	}
	inNamespace := model.PodPeer{Namespace: "shop"}
	rule := model.PolicyRule{Action: model.PolicyAccept, Peers: []model.PolicyPeer{{Pods: &inNamespace}}, AnyPort: true}
	allow := model.PolicyDirection{On: true, Rules: []model.PolicyRule{rule}}
	x.SetPolicy(model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "all"}, Subject: inNamespace,
		Ingress: allow, Egress: allow,
	})
	return compiledPolicies{x}
}

func (p compiledPolicies) Decide(network string, f compiled.Flow) ([]compiled.Side, bool) {
	return p.index.Decide(network, f), true
}

func (p compiledPolicies) DecideAtHosts(f compiled.Flow) ([]compiled.Side, string) {
	return p.index.Calico().Through(f)
}

func (p compiledPolicies) Holder(network string, a netip.Addr) (model.PodRef, string, bool) {
	ref := p.index.Holder(network, a)
	return ref, p.index.NodeOf(ref), ref.Name != ""
}

func (p compiledPolicies) Version() uint64 { return p.index.Version() }

func (compiledPolicies) LogsDenied() bool { return true }

func (compiledPolicies) ObserveDenied(func(policy.DeniedPacket)) func() { return func() {} }

// BenchmarkLevelFlows is what a connection, with its beginning and its end, costs an agent of the level flows, with the
// sockets: CPU time of the process and how often it is switched to.
func BenchmarkLevelFlows(b *testing.B) {
	ns := nettest.NS(b, "n")
	for _, line := range []string{
		"ip link set lo up", "ip addr add 10.42.1.2/32 dev lo", "ip addr add 10.42.1.3/32 dev lo",
		"sysctl -qw net.netfilter.nf_conntrack_udp_timeout=1 net.netfilter.nf_conntrack_max=1000000",
	} {
		nettest.Run(b, ns, strings.Fields(line)...)
	}
	nettest.Run(b, ns, "nft", "add table ip t; add chain ip t c { type filter hook output priority 0; }; add rule ip t c ct state new accept")
	n := &node{records: &records{}}
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	o := observer.New(observer.Config{
		Node: "node1", Records: n.records, Policies: newCompiledPolicies(), NS: ns, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Level: flow.LevelFlows, Drops: func(func(drops.Drop)) (*drops.Session, error) { return nil, errNoDrops },
	})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	n.ns = ns
	for n.sockets(b) == 0 {
		time.Sleep(time.Millisecond)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	load := exec.Command(self)
	load.Env = append(os.Environ(), fmt.Sprintf("%s=%d", loadVariable, b.N))
	load.Stderr = os.Stderr
	var before, after unix.Rusage
	var heap, heapAfter runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&heap)
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	if err := ns.Do(load.Start); err != nil {
		b.Fatal(err)
	}
	if err := load.Wait(); err != nil {
		b.Fatal(err)
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	runtime.ReadMemStats(&heapAfter)
	lost := o.Lost()
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	per := func(n int64) float64 { return float64(n) / float64(b.N) }
	b.ReportMetric(per(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()), "cpu-ns/flow")
	b.ReportMetric(per(after.Nvcsw+after.Nivcsw-before.Nvcsw-before.Nivcsw), "switches/flow")
	b.ReportMetric(per(int64(heapAfter.Mallocs-heap.Mallocs)), "allocs/flow")
	b.ReportMetric(per(int64(heapAfter.TotalAlloc-heap.TotalAlloc)), "B/flow")
	b.ReportMetric(float64(lost.New), "lost")
	b.ReportMetric(0, "ns/op") // the load's
}
