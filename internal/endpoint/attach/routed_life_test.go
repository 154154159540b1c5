// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const shaped = `{"type":"bandwidth","ingressRate":80000000,"ingressBurst":8000000,"egressRate":80000000,"egressBurst":8000000}`

// A port of the node leads to a routed pod: from other pods, from the pod itself, from the node and from its loopback
// address.
func TestRoutedHostPort(t *testing.T) {
	n := routedNode(t)
	port := `{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}}`
	id, ns := n.pod()
	job := n.job(n.list(calico, port, shaped), id, ns)
	result := n.add(job)
	other, _ := n.routedPod(calico, "web-1")
	l := serve(t, ns, "tcp4", result.IPs[0].Address.Addr().String()+":80")
	defer l()
	for name, from := range map[string]func() error{
		"another pod":    func() error { return other.Netns.Do(func() error { return dial("192.0.2.7:8080") }) },
		"the pod itself": func() error { return ns.Do(func() error { return dial("192.0.2.7:8080") }) },
		"the node":       func() error { return dial("192.0.2.7:8080") },
		"its loopback":   func() error { return dial("127.0.0.1:8080") },
	} {
		if err := from(); err != nil {
			t.Errorf("from %s: %v", name, err)
		}
	}
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := errors.Join(n.Del(t.Context(), job), n.Del(t.Context(), other)); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// A pod's next sandbox has the same name on the node. It has to wait for the DEL of the previous one; a foreign link of
// that name is removed.
func TestRoutedSandboxAgain(t *testing.T) {
	n := routedNode(t)
	first, _ := n.routedPod(calico, "web-0")
	second := n.podJob(calico, "web-0")
	_, err := n.Add(t.Context(), second)
	wantCode(t, "beside the first", err, model.CodeTryAgain, `interface "cali0d7763386da" exists already on the node`,
		first.Request.ContainerID)
	if err := n.Del(t.Context(), first); err != nil {
		t.Error(err)
	}
	n.add(second)
	if err := n.Del(t.Context(), first); err != nil { // again, as a runtime may
		t.Error(err)
	}
	if err := n.Check(t.Context(), second); err != nil {
		t.Errorf("the second after the first's DEL: %v", err)
	}
	if err := n.Del(t.Context(), second); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
	nettest.Run(t, nil, "ip", "link", "add", "cali0d7763386da", "type", "veth", "peer", "name", "old")
	third, _ := n.routedPod(calico, "web-0")
	if out, err := nettest.Try(nil, "ip", "link", "show", "old"); err == nil {
		t.Errorf("the other end of what stood there is left: %s", out)
	}
	if err := n.Del(t.Context(), third); err != nil {
		t.Error(err)
	}
	n.clean("DEL of the third")
}

// Whatever step fails, nothing is left; what a kill leaves is undone by the next start.
func TestRoutedFailsAnywhere(t *testing.T) {
	n, _ := wishingNode(t)
	list := []string{
		"cni.projectcalico.org/floatingIPs", `["198.51.100.7"]`, qos + "egressPacketRate", "100", qos + "dscp", "8",
	}
	errStep := errors.New("not today")
	for k, steps := 0, 1; k < steps; k++ {
		var seen []string
		cfg := n.cfg
		cfg.Failpoint = func(name string) error {
			if seen = append(seen, name); len(seen) == k+1 {
				return errStep
			}
			return nil
		}
		job := n.saying(calicoOpen+","+shaped, "web-0", list...)
		if _, err := attach.New(cfg).Add(t.Context(), job); err == nil {
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
			break
		}
		steps = k + 2
		n.clean(seen[k])
	}
	n.clean("DEL")
	for _, at := range []string{"after promise plan", "after ipam", "after apply", "before done"} {
		job := n.saying(calicoOpen+","+shaped, "web-0", list...)
		if _, err := n.cut(at).Add(t.Context(), job); !errors.Is(err, errCut) {
			t.Fatalf("%s: %v", at, err)
		}
		if report, err := attach.New(n.cfg).Recover(t.Context()); err != nil || report.Undone != 1 {
			t.Errorf("%s: %+v %v", at, report, err)
		}
		n.clean("recovery after " + at)
	}
}

// Rules that others flush come back; records that are lost are found by the marks; GC keeps valid attachments.
func TestRoutedRepairAndGC(t *testing.T) {
	n, _ := wishingNode(t)
	a := n.saying(calicoOpen, "web-0", "cni.projectcalico.org/floatingIPs", `["198.51.100.7"]`, qos+"egressPacketRate",
		"100", qos+"dscp", "8")
	b := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrs", `["10.8.0.10"]`)
	n.add(a)
	n.add(b)
	ruleset := func() (out string) { // sorted, independent of the order of creation
		for _, table := range plugin.SharedTables() {
			if text, err := nettest.Try(nil, "nft", "-s", "list", "table", table.Family, table.Name); err == nil {
				out += text
			}
		}
		return out
	}
	before := ruleset()
	for _, outsider := range []string{
		"flush ruleset", "delete table inet weft_source", "flush set arp weft_source own4",
		"flush set inet weft_qos packets_out",
	} {
		nettest.Run(t, nil, "nft", outsider)
		if err := n.RepairRules(t.Context(), false); err != nil {
			t.Errorf("%s: %v", outsider, err)
		}
		if d := cmp.Diff(before, ruleset()); d != "" {
			t.Errorf("%s (-before +after):\n%s", outsider, d)
		}
	}
	if err := n.GC(t.Context(), n.job(n.list(calicoOpen), "", nil), []model.AttachmentKey{b.Request.Key()}); err != nil {
		t.Error(err)
	}
	n.drain()
	if out := ruleset(); strings.Contains(out, n.hostEnd(a)) || !strings.Contains(out, n.hostEnd(b)) {
		t.Errorf("after GC:\n%s", out)
	}
	if err := n.Check(t.Context(), b); err != nil {
		t.Error(err)
	}
	if err := n.ledger.Delete(b.Request.Key()); err != nil {
		t.Fatal(err)
	}
	if err := n.Del(t.Context(), b); err != nil {
		t.Error(err)
	}
	if out, err := nettest.Try(nil, "ip", "link", "show", plugin.CalicoHostName(b.Request)); err == nil {
		t.Errorf("without a record: %s", out)
	}
	nettest.Run(t, nil, "nft", "flush", "ruleset")
	n.clean("DEL")
}

// A foreign IPAM plugin, and any that sends packets, finds the routed interface up and without addresses.
func TestRoutedLateIPAM(t *testing.T) {
	n := routedNode(t)
	n.plugin("looker", looker)
	id, ns := n.pod()
	job := n.job(n.list(`{"type":"calico","ipam":{"type":"looker"}}`), id, ns)
	result := n.add(job)
	if result.IPs[0].Address.String() != "10.8.0.7/32" {
		t.Errorf("%+v", result)
	}
	nettest.Run(t, ns, "ping", "-c1", "-W20", "192.0.2.7")
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// A pod may have IPv6 alone, in a namespace where the runtime has switched it off.
func TestRoutedIPv6Only(t *testing.T) {
	n, _ := wishingNode(t)
	a := n.saying(calicoOpen, "web-0", "cni.projectcalico.org/ipAddrs", `["fd00:8::33"]`)
	b := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrs", `["fd00:8::34"]`)
	for _, job := range []attach.Job{a, b} {
		nettest.Run(t, job.Netns, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
		n.add(job)
	}
	nettest.Run(t, a.Netns, "ping", "-c1", "-W20", "fd00:8::34")
	if out := nettest.Run(t, a.Netns, "ip", "-4", "route"); out != "" {
		t.Errorf("routes of IPv4: %s", out)
	}
	for _, job := range []attach.Job{a, b} {
		if err := errors.Join(n.Check(t.Context(), job), n.Del(t.Context(), job)); err != nil {
			t.Error(err)
		}
	}
	n.clean("DEL")
}

// A pod that Calico's own plugin has attached is detached by weft, which has no record of it.
func TestRoutedPodOfCalico(t *testing.T) {
	n := routedNode(t)
	job := n.podJob(calico, "web-0")
	for _, line := range []string{
		"link add cali0d7763386da address ee:ee:ee:ee:ee:ee type veth peer name eth0 netns " + job.Netns.Path(),
		"link set cali0d7763386da up", "route add 10.8.0.99 dev cali0d7763386da",
	} {
		nettest.IP(t, nil, line)
	}
	for range 2 {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	n.gone(job.Netns, "eth0")
	n.clean("DEL")
}

// A pod may have several routed interfaces: each has names of its own on the node, and the default routes are the first
// one's.
func TestRoutedTwice(t *testing.T) {
	n, _ := wishingNode(t)
	first := n.saying(calicoOpen, "web-0", "cni.projectcalico.org/ipAddrs", `["10.8.0.33","fd00:8::33"]`)
	second := n.job(strings.Replace(n.list(calico), `"name":"net"`, `"name":"more"`, 1),
		first.Request.ContainerID, first.Netns)
	second.Request.IfName, second.Request.Args = "net1", first.Request.Args
	second.Request.Origin = &model.Origin{Pod: first.Request.Origin.Pod, Network: "default/more"}
	other := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrs", `["10.8.0.34","fd00:8::34"]`)
	n.add(other)
	results, _, err := n.AddAll(t.Context(), []attach.Job{first, second})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := results[0].Interfaces[0].Name, results[1].Interfaces[0].Name; a == b || a != "cali0d7763386da" {
		t.Errorf("the node's ends are %s and %s", a, b)
	}
	for _, r := range results {
		for _, ip := range r.IPs {
			nettest.Run(t, other.Netns, "ping", "-c1", "-W20", ip.Address.Addr().String())
		}
	}
	for _, job := range []attach.Job{first, second} {
		if err := n.Check(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	for _, job := range []attach.Job{second, first, other} {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	n.drain()
	if out := nettest.Run(t, nil, "ip", "-br", "link", "show", "type", "veth"); out != "" {
		t.Error(out)
	}
}
