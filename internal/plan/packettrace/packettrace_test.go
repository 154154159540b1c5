// SPDX-License-Identifier: Apache-2.0

package packettrace_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/packettrace"
)

const (
	src, dst     = "10.42.1.2:40000", "10.42.2.9:80"
	outer, other = "172.18.0.1:50000", "172.18.0.2:8472"
	back, tunnel = "172.18.0.2:50001", "172.18.0.1:8472"
)

func end(name, node, addr string) explain.End {
	return explain.End{Kind: explain.PodEnd, Name: name, Node: node, Addr: netip.MustParseAddr(addr)}
}

// step is a step at "node", or "pod@node".
func step(place, hook, verdict, from, to string) packettrace.Step {
	pod, node, found := strings.Cut(place, "@")
	if !found {
		pod, node = "", place
	}
	return packettrace.Step{
		Node:    node,
		Pod:     pod,
		Chain:   hook,
		Verdict: verdict,
		From:    netip.MustParseAddrPort(from),
		To:      netip.MustParseAddrPort(to),
	}
}

// complete is a probe over VXLAN that arrives and is answered, in the order of its way.
func complete() []packettrace.Step {
	all := []packettrace.Step{
		step("a@n1", "output", "arrived", src, dst), step("a@n1", "postrouting", "arrived", src, dst),
		step("n1", "prerouting", "arrived", src, dst), step("n1", "postrouting", "arrived", src, dst),
		step("n1", "output", "arrived", outer, other), step("n1", "postrouting", "arrived", outer, other),
		step("n2", "prerouting", "arrived", outer, other), step("n2", "prerouting", "arrived", src, dst),
		step("n2", "postrouting", "arrived", src, dst), step("b@n2", "prerouting", "arrived", src, dst),
		step("b@n2", "output", "arrived", dst, src), step("b@n2", "postrouting", "arrived", dst, src),
		step("n2", "prerouting", "arrived", dst, src), step("n2", "postrouting", "arrived", dst, src),
		step("n2", "output", "arrived", back, tunnel), step("n2", "postrouting", "arrived", back, tunnel),
		step("n1", "prerouting", "arrived", back, tunnel), step("n1", "prerouting", "arrived", dst, src),
		step("n1", "postrouting", "arrived", dst, src), step("a@n1", "prerouting", "arrived", dst, src),
	}
	for i, out := range map[int]string{1: "eth0", 3: "flannel.1", 5: "wire", 8: "veth", 11: "eth0", 13: "flannel.1", 15: "wire", 18: "veth"} {
		all[i].Out = out
	}
	for i := range all {
		all[i].Packet, all[i].Micros = uint32(i+1), int64(i)
	}
	return all
}

func explained(steps []packettrace.Step) packettrace.Report {
	return packettrace.Explain(packettrace.Input{
		From:       end("a", "n1", "10.42.1.2"),
		To:         end("b", "n2", "10.42.2.9"),
		Protocol:   model.TCP,
		Port:       80,
		TunnelPort: 8472,
		Steps:      steps,
	})
}

// The place where the packet or its answer was lost is named, wherever its way ends.
func TestLost(t *testing.T) {
	for i, c := range []struct {
		state        packettrace.State
		where, cause string
	}{
		{packettrace.Lost, "a on n1", "was not seen in a on n1"},
		{packettrace.Lost, "a on n1", "did not send it on to n1"},
		{packettrace.Lost, "a on n1", "was sent to eth0 by a on n1, and never came to n1"},
		{packettrace.Lost, "n1", "the packet came to n1, which did not send it on to n2"},
		{packettrace.Lost, "between n1 and n2", "was sent to flannel.1 by n1, and never came to n2"}, // not even in a tunnel
		{packettrace.Lost, "between n1 and n2", "was sent to flannel.1 by n1, and never came to n2"},
		{packettrace.Lost, "between n1 and n2", "was sent to wire by n1, and never came to n2"},
		{packettrace.Lost, "n2", "was not unwrapped"},
		{packettrace.Lost, "n2", "the packet came to n2, which did not send it on to b on n2"},
		{packettrace.Lost, "n2", "was sent to veth by n2, and never came to b on n2"},
		{packettrace.Unanswered, "b on n2", "no answer was sent by b on n2"},
		{packettrace.Unanswered, "b on n2", "did not send it on to n2"},
		{packettrace.Unanswered, "b on n2", "the answer was sent to eth0 by b on n2"},
		{packettrace.Unanswered, "n2", "the answer came to n2, which did not send it on to n1"},
		{packettrace.Unanswered, "between n2 and n1", "was sent to flannel.1 by n2"},
		{packettrace.Unanswered, "between n2 and n1", "was sent to flannel.1 by n2"},
		{packettrace.Unanswered, "between n2 and n1", "was sent to wire by n2"},
		{packettrace.Unanswered, "n1", "was not unwrapped"},
		{packettrace.Unanswered, "n1", "the answer came to n1, which did not send it on to a on n1"},
		{packettrace.Unanswered, "n1", "was sent to veth by n1"},
		{packettrace.Arrived, "", ""},
	} {
		r := explained(complete()[:i])
		if r.State != c.state || r.Where != c.where || !strings.Contains(r.Cause, c.cause) ||
			(r.Cause == "") != (c.state == packettrace.Arrived) {
			t.Errorf("%d steps: %s at %q: %q", i, r.State, r.Where, r.Cause)
		}
	}
}

// A rule that drops the packet is named, also that of a tunnel's packet, and the policy of a chain.
func TestDropped(t *testing.T) {
	drop := step("n2", "i", "drop", outer, other)
	drop.Packet, drop.Family, drop.Table, drop.Handle, drop.Rule = 7, "inet", "fw", 3, "udp dport 8472 drop"
	r := explained(append(complete()[:7], drop))
	if r.State != packettrace.Lost || r.Where != "n2" ||
		r.Object != "chain inet fw i, rule with handle 3: udp dport 8472 drop" {
		t.Errorf("%+v", r)
	}
	drop.From, drop.To = netip.MustParseAddrPort(dst), netip.MustParseAddrPort(src)
	drop.Policy, drop.Chain, drop.Packet = true, "f", 13
	r = explained(append(complete()[:13], drop))
	if r.State != packettrace.Unanswered || r.Object != "policy of chain inet fw f is drop" ||
		!strings.HasPrefix(r.Cause, "the answer") {
		t.Errorf("%+v", r)
	}
	var text strings.Builder
	r.Text(&text, false)
	if !strings.Contains(text.String(), "inet fw f: policy drop") || !strings.Contains(text.String(), "unanswered") {
		t.Errorf("%s", &text)
	}
}

// Where the kernel reports no drops, the counters that rose are evidence.
func TestCounters(t *testing.T) {
	in := packettrace.Input{
		From: end("a", "n1", "10.42.1.2"), To: end("b", "n2", "10.42.2.9"), Steps: complete()[:4], TunnelPort: 8472,
		Unwatched: "n2: no BTF",
		Counters:  []packettrace.Counter{{Node: "n2", Name: "TcpExtIPReversePathFilter", By: 1}},
	}
	r := packettrace.Explain(in)
	var text strings.Builder
	r.Text(&text, false)
	if r.State != packettrace.Lost || len(r.Counters) != 1 ||
		!strings.Contains(text.String(), "n2 counted 1 more lost packets, of whatever kind: TcpExtIPReversePathFilter") {
		t.Errorf("%s: %s", r.State, text.String())
	}
	in.Drops = []packettrace.Drop{{Node: "n2", Reason: "IP_RPFILTER"}}
	if r := packettrace.Explain(in); len(r.Counters) != 0 {
		t.Errorf("besides the kernel's reason: %+v", r.Counters)
	}
	in.Steps, in.Drops = complete(), nil
	if r := packettrace.Explain(in); r.State != packettrace.Arrived || len(r.Counters) != 0 {
		t.Errorf("%s: %+v", r.State, r.Counters)
	}
}

// A packet that the sender's kernel refuses is not sent; a datagram needs no answer.
func TestNotSentAndUDP(t *testing.T) {
	in := packettrace.Input{
		From:      end("a", "n1", "10.42.1.2"),
		To:        end("b", "n2", "10.42.2.9"),
		SendError: "message too long",
	}
	if r := packettrace.Explain(
		in,
	); r.State != packettrace.NotSent || r.Where != "a on n1" ||
		r.Cause != "message too long" {
		t.Errorf("%+v", r)
	}
	in.Steps = []packettrace.Step{{
		Node: "n1", Pod: "a", Family: "inet", Table: "own", Chain: "c", Handle: 2, Verdict: "drop", Rule: "drop",
		From: netip.MustParseAddrPort("10.42.1.2:0"), To: netip.MustParseAddrPort("10.42.2.9:0"),
	}}
	if r := packettrace.Explain(in); r.State != packettrace.NotSent || r.Where != "a on n1" ||
		r.Object != "chain inet own c, rule with handle 2: drop" {
		t.Errorf("a rule of the pod: %+v", r)
	}
	in.SendError, in.Protocol, in.Steps, in.TunnelPort = "", model.UDP, complete()[:10], 8472
	if r := packettrace.Explain(in); r.State != packettrace.Arrived {
		t.Errorf("%+v", r)
	}
}

// Outside of the cluster only an answer shows that the packet arrived.
func TestOutside(t *testing.T) {
	in := packettrace.Input{
		From:     end("a", "n1", "10.42.1.2"),
		To:       explain.End{Kind: explain.OutsideEnd, Addr: netip.MustParseAddr("10.42.2.9")},
		Protocol: model.TCP,
	}
	in.Steps = complete()[:4]
	if r := packettrace.Explain(in); r.State != packettrace.Unanswered || !strings.Contains(r.Cause, "left n1") {
		t.Errorf("%+v", r)
	}
	in.Steps = append(in.Steps, complete()[17:]...)
	if r := packettrace.Explain(in); r.State != packettrace.Arrived || r.Cause != "" {
		t.Errorf("%+v", r)
	}
	for n, where := range map[int]string{1: "a on n1", 2: "a on n1", 3: "n1"} {
		in.Steps = complete()[:n]
		if r := packettrace.Explain(in); r.State != packettrace.Lost || r.Where != where {
			t.Errorf("%d steps: %+v", n, r)
		}
	}
}

// Clocks of nodes may differ, and steps come in any order: the result is the same.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, len(complete())).Draw(t, "steps")
		want := explained(complete()[:n])
		steps := complete()[:n]
		late := rapid.Int64Range(-1000, 1000).Draw(t, "clock")
		for i := range steps {
			if steps[i].Node == "n2" {
				steps[i].Micros += late
			}
		}
		steps = rapid.Permutation(steps).Draw(t, "order")
		got := explained(steps)
		if got.State != want.State || got.Where != want.Where || got.Cause != want.Cause {
			t.Fatalf("%s at %q, want %s at %q", got.State, got.Where, want.State, want.Where)
		}
		for i := range got.Steps { // by place and time
			if got.Steps[i].Packet != want.Steps[i].Packet {
				t.Fatalf("order %v", slices.Collect(func(yield func(uint32) bool) {
					for _, s := range got.Steps {
						if !yield(s.Packet) {
							return
						}
					}
				}))
			}
		}
	})
}

// The address of a service is translated to that of an endpoint, or the packet goes no further.
func TestService(t *testing.T) {
	steps := complete()
	for i := range 3 { // until the node has translated it
		steps[i].To = netip.MustParseAddrPort("10.43.0.9:443")
	}
	service := explain.End{
		Kind: explain.ServiceEnd, Name: "shop/web", Addr: netip.MustParseAddr("10.43.0.9"), BackendPort: 80,
		Backends: []explain.End{end("c", "n2", "10.42.2.8"), end("b", "n2", "10.42.2.9")},
	}
	in := packettrace.Input{
		From:       end("a", "n1", "10.42.1.2"),
		To:         service,
		Protocol:   model.TCP,
		Port:       443,
		TunnelPort: 8472,
		Steps:      steps,
	}
	r := packettrace.Explain(in)
	var text strings.Builder
	r.Text(&text, false)
	if r.State != packettrace.Arrived || r.Service != "shop/web" || r.To.Name != "b" ||
		!strings.Contains(text.String(), "service shop/web port 443/tcp, pod b") {
		t.Errorf("%+v\n%s", r, &text)
	}
	in.Steps = steps[:3]
	if r := packettrace.Explain(in); r.State != packettrace.Lost || r.Where != "n1" || r.Object != "service shop/web" {
		t.Errorf("not translated: %+v", r)
	}
	in.Steps = steps[:9]
	if r := packettrace.Explain(in); r.State != packettrace.Lost || r.Where != "n2" {
		t.Errorf("lost after it: %+v", r)
	}
}

// A reset is an answer of an end where no process listens; so is a datagram without a socket.
func TestRefused(t *testing.T) {
	steps := complete()
	for i := range steps {
		steps[i].Reset = steps[i].From.Addr().String() == "10.42.2.9"
	}
	r := explained(steps)
	if r.State != packettrace.Refused || r.Where != "b on n2" || r.Cause != "no process listens on port 80/tcp" {
		t.Errorf("%+v", r)
	}
	in := packettrace.Input{
		From:       end("a", "n1", "10.42.1.2"),
		To:         end("b", "n2", "10.42.2.9"),
		Protocol:   model.UDP,
		Port:       53,
		TunnelPort: 8472,
		Steps:      complete()[:10],
		Drops:      []packettrace.Drop{{Node: "n2", Pod: "b", Reason: "NO_SOCKET", Function: "udp_rcv", Interface: "eth0"}},
	}
	if r := packettrace.Explain(in); r.State != packettrace.Refused || r.Object != "port 53/udp" {
		t.Errorf("UDP: %+v", r)
	}
	in.Drops[0].Answer = true
	if r := packettrace.Explain(in); r.State != packettrace.Arrived {
		t.Errorf("an answer without a socket: %+v", r)
	}
}

// Datagrams without an identification are not taken for one another, unless there is only one.
func TestLiveWithoutKeys(t *testing.T) {
	one := complete()[:10]
	in := packettrace.Input{
		From:       end("a", "n1", "10.42.1.2"),
		To:         end("b", "n2", "10.42.2.9"),
		Protocol:   model.UDP,
		Port:       53,
		TunnelPort: 8472,
		Steps:      one,
		Live:       true,
	}
	if r := packettrace.Explain(in); r.State != packettrace.Arrived {
		t.Errorf("one: %+v", r)
	}
	for _, s := range complete()[:5] {
		s.Packet, s.Micros = s.Packet+100, s.Micros+100
		in.Steps = append(in.Steps, s)
	}
	if r := packettrace.Explain(in); r.State != packettrace.Unknown || r.Where != "a on n1" {
		t.Errorf("two: %+v", r)
	}
	in.Steps = one[6:] // what its sender sent was not seen
	if r := packettrace.Explain(in); r.State != packettrace.Lost || r.Where != "a on n1" {
		t.Errorf("without its beginning: %+v", r)
	}
}

// Where a node had more steps than it could read, a missing one proves nothing; a drop does.
func TestLiveIncomplete(t *testing.T) {
	steps := complete()
	in := packettrace.Input{
		From: end("a", "n1", "10.42.1.2"), To: end("b", "n2", "10.42.2.9"), Protocol: model.TCP, Port: 8080,
		Steps: steps[:len(steps)-3], Live: true,
	}
	for i := range in.Steps {
		in.Steps[i].Key = 1
	}
	if r := packettrace.Explain(in); r.State != packettrace.Unanswered {
		t.Errorf("all steps were read: %s at %q: %q", r.State, r.Where, r.Cause)
	}
	in.Incomplete = "n1"
	if r := packettrace.Explain(in); r.State != packettrace.Unknown || !strings.Contains(r.Cause, "n1 had more steps") {
		t.Errorf("some steps were not read: %s at %q: %q", r.State, r.Where, r.Cause)
	}
	in.Drops = []packettrace.Drop{{Node: "n1", Reason: "IP_RPFILTER", Answer: true, Key: 1}}
	if r := packettrace.Explain(in); r.State != packettrace.Unanswered || r.Drop == nil {
		t.Errorf("the kernel has said where it was dropped: %s at %q: %q", r.State, r.Where, r.Cause)
	}
}

// An answer to an earlier packet is not that of the packet that is followed.
func TestLiveAnswer(t *testing.T) {
	var steps []packettrace.Step
	for i, s := range complete() {
		if i >= 10 { // an answer that was sent before the packet came
			s.Key, s.Packet, s.Micros = 9, s.Packet+100, s.Micros-100
			steps = append(steps, s)
		}
	}
	for _, s := range complete()[:10] {
		s.Key = 1
		steps = append(steps, s)
	}
	in := packettrace.Input{
		From:       end("a", "n1", "10.42.1.2"),
		To:         end("b", "n2", "10.42.2.9"),
		Protocol:   model.TCP,
		Port:       80,
		TunnelPort: 8472,
		Steps:      steps,
		Live:       true,
	}
	if r := packettrace.Explain(in); r.State != packettrace.Unanswered || r.Where != "b on n2" {
		t.Errorf("%+v", r)
	}
}

// A reset that a firewall on the way sends is not that of the end.
func TestResetOnTheWay(t *testing.T) {
	steps := complete()
	steps = append(steps[:9:9], steps[13:]...) // it begins at n2, to which the packet came
	for i := range steps {
		steps[i].Reset = steps[i].From.Addr().String() == "10.42.2.9"
	}
	if r := explained(steps); r.State == packettrace.Refused || r.State == packettrace.Arrived {
		t.Errorf("%+v", r)
	}
}

// A drop by the kernel is named in place of the last place where the packet was seen.
func TestKernelDrop(t *testing.T) {
	in := packettrace.Input{
		From:       end("a", "n1", "10.42.1.2"),
		To:         end("b", "n2", "10.42.2.9"),
		Protocol:   model.TCP,
		Port:       80,
		TunnelPort: 8472,
		Steps:      complete()[:6],
		Unwatched:  "n1: no BTF",
	}
	if r := packettrace.Explain(in); r.Where != "between n1 and n2" || r.Unwatched != "n1: no BTF" || r.Drop != nil {
		t.Errorf("%+v", r)
	}
	in.Drops = []packettrace.Drop{{Node: "n2", Reason: "OTHERHOST", Function: "ip_rcv", Interface: "eth0", Tunnel: true}}
	r := packettrace.Explain(in)
	if r.Where != "n2" || r.Cause != "the packet was dropped by the kernel: OTHERHOST in ip_rcv, on eth0" ||
		r.Drop == nil ||
		r.Unwatched != "" {
		t.Errorf("%+v", r)
	}
}

// Reports of the same loss are one.
func TestSeries(t *testing.T) {
	var s packettrace.Series
	for _, n := range []int{20, 3, 3, 20, 9} {
		s.Add(explained(complete()[:n]))
	}
	var text strings.Builder
	s.Text(&text, false)
	if s.Sent != 5 || s.Arrived != 2 || len(s.Losses) != 2 || s.Losses[0].Count != 2 ||
		!strings.HasPrefix(text.String(), "2 of 5 packets arrived\n2: ") {
		t.Errorf("%+v\n%s", s, &text)
	}
}

// Of many packets between the same ends, the one that its sender sent first is followed, not the first at each place.
func TestLiveFollowsOnePacket(t *testing.T) {
	var steps []packettrace.Step
	for n, count := range []int{9, 20} { // the first one is lost at n2, the second one arrives
		for _, s := range complete()[:count] {
			s.Packet, s.Micros, s.Key = s.Packet+uint32(100*n), s.Micros+int64(100*n), uint64(n+1)
			steps = append(steps, s)
		}
	}
	in := packettrace.Input{
		From: end("a", "n1", "10.42.1.2"), To: end("b", "n2", "10.42.2.9"), TunnelPort: 8472, Steps: steps, Live: true,
		Drops: []packettrace.Drop{{Node: "n1", Reason: "OTHER", Key: 2}, {Node: "n2", Reason: "IP_RPFILTER", Key: 1}},
	}
	r := packettrace.Explain(in)
	if r.State != packettrace.Lost || r.Where != "n2" || r.Drop == nil || r.Drop.Reason != "IP_RPFILTER" {
		t.Errorf("%+v", r)
	}
	in.Steps, in.Drops = steps[9:], nil
	if r := packettrace.Explain(in); r.State != packettrace.Arrived {
		t.Errorf("the second: %+v", r)
	}
}

// A busy connection has ten thousand steps at each place, of which those of one packet are left.
func TestManySteps(t *testing.T) {
	var steps []packettrace.Step
	for n := range 5000 {
		for _, s := range complete() {
			s.Packet, s.Micros, s.Key = s.Packet+uint32(100*n), s.Micros+int64(100*n), uint64(n+1)
			steps = append(steps, s)
		}
	}
	r := packettrace.Explain(packettrace.Input{
		From: end("a", "n1", "10.42.1.2"), To: end("b", "n2", "10.42.2.9"), TunnelPort: 8472, Steps: steps, Live: true,
	})
	if r.State != packettrace.Arrived ||
		slices.ContainsFunc(r.Steps, func(s packettrace.Step) bool { return s.Key != 1 }) {
		t.Errorf("%s at %q: %d steps", r.State, r.Where, len(r.Steps))
	}
}

// What a pod or a node sends to itself does not leave it: ICMP is answered, and a port at which no process listens refuses.
func TestToItself(t *testing.T) {
	const echo, reply, echo6, reply6 = 8 << 8, 0, 128 << 8, 129 << 8 // type and code, where TCP has its port
	node := explain.End{Kind: explain.NodeEnd, Name: "n1", Node: "n1", Addr: netip.MustParseAddr("172.18.0.1")}
	for name, c := range map[string]struct {
		of           explain.End
		protocol     model.Protocol
		there, back  [2]uint16 // ports
		reset        bool
		socket, lost bool
		want         packettrace.State
	}{
		"echo":         {of: end("a", "n1", "10.42.1.2"), there: [2]uint16{echo, 7}, back: [2]uint16{reply, 9}, socket: true, want: packettrace.Arrived},
		"IPv6":         {of: end("a", "n1", "fd42::2"), there: [2]uint16{echo6, 7}, back: [2]uint16{reply6, 9}, socket: true, want: packettrace.Arrived},
		"node":         {of: node, there: [2]uint16{echo, 7}, back: [2]uint16{reply, 9}, socket: true, want: packettrace.Arrived},
		"not answered": {of: end("a", "n1", "10.42.1.2"), there: [2]uint16{echo, 7}, lost: true, want: packettrace.Unanswered},
		"TCP":          {of: end("a", "n1", "10.42.1.2"), protocol: model.TCP, there: [2]uint16{40000, 80}, back: [2]uint16{80, 40000}, want: packettrace.Arrived},
		"refused":      {of: end("a", "n1", "10.42.1.2"), protocol: model.TCP, there: [2]uint16{40000, 80}, back: [2]uint16{80, 40000}, reset: true, want: packettrace.Refused},
		"UDP refused":  {of: end("a", "n1", "10.42.1.2"), protocol: model.UDP, there: [2]uint16{40000, 80}, socket: true, lost: true, want: packettrace.Refused},
	} {
		in := packettrace.Input{From: c.of, To: c.of, Protocol: c.protocol, TunnelPort: 8472}
		if c.protocol != "" {
			in.Port = 80
		}
		pod := ""
		if c.of.Kind == explain.PodEnd {
			pod = c.of.Name
		}
		seen := func(ports [2]uint16, reset bool) {
			for _, hook := range []string{"output", "postrouting", "prerouting"} {
				in.Steps = append(in.Steps, packettrace.Step{
					Node: "n1", Pod: pod, Micros: int64(len(in.Steps)), Packet: uint32(len(in.Steps) + 1), Chain: hook, Verdict: "arrived",
					From: netip.AddrPortFrom(c.of.Addr, ports[0]), To: netip.AddrPortFrom(c.of.Addr, ports[1]), Reset: reset,
				})
			}
		}
		seen(c.there, false)
		if !c.lost {
			seen(c.back, c.reset)
		}
		if c.socket { // the kernel reports it also of the reply to a ping that has no socket
			in.Drops = []packettrace.Drop{{Node: "n1", Pod: pod, Reason: "NO_SOCKET"}}
		}
		r := packettrace.Explain(in)
		if r.State != c.want {
			t.Errorf("%s: %s at %q: %s, not %s", name, r.State, r.Where, r.Cause, c.want)
		}
		if !slices.IsSortedFunc(r.Steps, func(a, b packettrace.Step) int { return int(a.Micros - b.Micros) }) {
			t.Errorf("%s: steps are not in their order: %+v", name, r.Steps)
		}
	}
}

// An address of a node's prefix that no pod has is not outside of the cluster: the packet came to that node, and no farther.
func TestUnused(t *testing.T) {
	in := packettrace.Input{
		From: end("a", "n1", "10.42.1.2"), To: explain.End{Kind: explain.OutsideEnd, Name: "10.42.2.9", Node: "n2", Addr: netip.MustParseAddr("10.42.2.9")},
		Protocol: model.TCP, Port: 80, TunnelPort: 8472, Steps: complete()[:8],
	}
	r := packettrace.Explain(in)
	if r.State != packettrace.Lost || r.Where != "n2" || r.Object != "routes of n2" ||
		r.Cause != "the packet came to n2, which did not send it on: no pod that the agents know has 10.42.2.9" {
		t.Errorf("%+v", r)
	}
	in.Drops = []packettrace.Drop{{Node: "n2", Reason: "IP_INNOROUTES", Function: "ip_error"}}
	r = packettrace.Explain(in)
	if r.State != packettrace.Lost || r.Object != "kernel of n2" || !strings.HasSuffix(r.Cause, "IP_INNOROUTES in ip_error: no pod that the agents know has 10.42.2.9") {
		t.Errorf("with the kernel's word: %+v", r)
	}
	in.Drops, in.Steps = nil, complete()[:9] // as on a bridge
	r = packettrace.Explain(in)
	if r.State != packettrace.Unanswered || r.Where != "n2" || !strings.Contains(r.Cause, "no pod that the agents know") {
		t.Errorf("sent on: %+v", r)
	}
	in.Steps = complete()[:4]
	r = packettrace.Explain(in)
	if r.State != packettrace.Lost || r.Where != "between n1 and n2" {
		t.Errorf("lost on the way: %+v", r)
	}
}

// A Service may lead to the pod that asks: then both ends have one address, and the node's is between them.
func TestHairpin(t *testing.T) {
	var steps []packettrace.Step
	seen := func(pod, chain, from, to string) {
		steps = append(steps, packettrace.Step{
			Node: "n1", Pod: pod, Micros: int64(len(steps)), Packet: uint32(len(steps) + 1), Chain: chain, Verdict: "arrived",
			From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to),
		})
	}
	const client, service, node, server = "10.42.1.2:40000", "10.43.0.9:443", "172.18.0.1:50000", "10.42.1.2:80"
	seen("a", "output", client, service)
	seen("", "prerouting", client, service)
	seen("", "postrouting", node, server)
	seen("a", "prerouting", node, server)
	forth := len(steps)
	seen("a", "output", server, node)
	seen("", "prerouting", server, node)
	seen("", "postrouting", service, client)
	seen("a", "prerouting", service, client)
	a := end("a", "n1", "10.42.1.2")
	in := packettrace.Input{
		From: a, Protocol: model.TCP, Port: 443, TunnelPort: 8472, Steps: steps,
		To: explain.End{
			Kind: explain.ServiceEnd, Name: "shop/web", Addr: netip.MustParseAddr("10.43.0.9"),
			Backends: []explain.End{a}, BackendPort: 80,
		},
		Drops: []packettrace.Drop{{Node: "n1", Pod: "a", Reason: "NO_SOCKET", Answer: true}},
	}
	if r := packettrace.Explain(in); r.State != packettrace.Arrived {
		t.Errorf("%s at %q: %s", r.State, r.Where, r.Cause)
	}
	in.Steps = steps[:forth]
	if r := packettrace.Explain(in); r.State != packettrace.Unanswered {
		t.Errorf("without an answer: %s at %q: %s", r.State, r.Where, r.Cause)
	}
}
