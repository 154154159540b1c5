// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// wished is an allocator that returns what is requested, or one address, and notes the wishes.
type wished struct {
	asked []model.AddressRequest
	freed int
	given map[string]bool
}

func (*wished) Type() string { return "calico-ipam" }

func (*wished) Capabilities() ipam.Capabilities                               { return ipam.Capabilities{} }
func (*wished) Keys() []string                                                { return nil }
func (*wished) Validate(json.RawMessage) error                                { return nil }
func (*wished) Status(context.Context, ipam.Request) error                    { return nil }
func (*wished) GC(context.Context, ipam.Request, []model.AttachmentKey) error { return nil }
func (w *wished) Del(context.Context, ipam.Request) error                     { w.freed++; return nil }

func (w *wished) Add(_ context.Context, ask ipam.Request) (out model.Result, _ error) {
	w.asked = append(w.asked, ask.PodRequest)
	addrs := ask.PodRequest.Addrs
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.MustParseAddr("10.8.0.9")}
	}
	if w.given == nil {
		w.given = map[string]bool{}
	}
	for _, a := range addrs {
		w.given[ask.ContainerID+" "+a.String()] = true
		out.IPs = append(out.IPs, model.IP{Address: netip.PrefixFrom(a, a.BitLen())})
	}
	return out, nil
}

func (w *wished) Check(_ context.Context, ask ipam.Request, prev model.Result) error {
	for _, ip := range prev.IPs {
		if !w.given[ask.ContainerID+" "+ip.Address.Addr().String()] {
			return model.Errorf(model.CodeDiffers, "", "address %s is not held for %s", ip.Address, ask.ContainerID)
		}
	}
	return nil
}

const calicoOpen = `{"type":"calico","policy":{"type":"k8s"},"ipam":{"type":"calico-ipam"},
	"feature_control":{"ip_addrs_no_ipam":true,"floating_ips":true,"source_prefixes":true}}`

// saying is the job of a pod with annotations.
func (n *node) saying(conf, name string, annotations ...string) attach.Job {
	job := n.podJob(conf, name)
	job.Request.Origin = &model.Origin{Pod: model.PodRef{Namespace: "default", Name: name}, Primary: true}
	for i := 0; i < len(annotations); i += 2 {
		job.Request.Origin.Annotations = append(job.Request.Origin.Annotations, [2]string{annotations[i], annotations[i+1]})
	}
	job.NamespaceLabels = map[string]string{"team": "a"}
	return job
}

// wishingNode returns a node with such an allocator.
func wishingNode(t *testing.T) (*node, *wished) {
	n, w := routedNode(t), &wished{}
	n.cfg.Allocators["calico-ipam"] = w
	n.Attacher = attach.New(n.cfg)
	return n, w
}

// What a pod's annotations request reaches the allocator, or bypasses IPAM, and its MAC address is the requested one.
func TestRoutedWishes(t *testing.T) {
	n, w := wishingNode(t)
	job := n.saying(calicoOpen, "web-0", "cni.projectcalico.org/ipAddrs", `["10.8.0.33","fd00:8::33"]`,
		"cni.projectcalico.org/ipv4pools", `["blue"]`,
		"cni.projectcalico.org/ipFamilies", `["IPv4","IPv6"]`, "cni.projectcalico.org/hwAddr", "02:00:00:00:00:33")
	result := n.add(job)
	want := []model.AddressRequest{{
		NamespaceLabels: map[string]string{"team": "a"}, Pools4: []string{"blue"},
		Families: []model.IPFamily{model.IPv4, model.IPv6},
		Addrs:    []netip.Addr{netip.MustParseAddr("10.8.0.33"), netip.MustParseAddr("fd00:8::33")},
	}}
	if d := cmp.Diff(want, w.asked, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if result.IPs[0].Address.String() != "10.8.0.33/32" || result.Interfaces[1].MAC != "02:00:00:00:00:33" {
		t.Errorf("result %+v", result)
	}
	if out := nettest.Run(t, job.Netns, "ip", "link", "show", "eth0"); !strings.Contains(out, "02:00:00:00:00:33") {
		t.Error(out)
	}
	nettest.Run(t, nil, "ping", "-c1", "-W20", "10.8.0.33")
	own := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrsNoIpam", `["172.16.0.9"]`)
	if result := n.add(own); result.IPs[0].Address.String() != "172.16.0.9/32" || len(w.asked) != 1 {
		t.Errorf("past IPAM: %+v, asked %d times", result, len(w.asked))
	}
	nettest.Run(t, nil, "ping", "-c1", "-W20", "172.16.0.9")
	own.Prev = nil
	if err := n.Check(t.Context(), own); err != nil {
		t.Error(err)
	}
	again := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrsNoIpam", `["172.16.0.9"]`)
	again.Request, again.Netns = own.Request, own.Netns
	n.add(again)
	for _, job := range []attach.Job{job, own} {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	if w.freed != 1 {
		t.Errorf("freed %d times, want 1: the second pod had nothing of IPAM", w.freed)
	}
	n.clean("DEL")
	_, err := n.Add(t.Context(), n.saying(calico, "web-2", "cni.projectcalico.org/floatingIPs", `["192.0.2.1"]`))
	wantCode(t, "closed gate", err, model.CodeInvalidConf,
		"annotation cni.projectcalico.org/floatingIPs: feature_control.floating_ips is off")
	n.clean("refused ADD")
}

// A floating IP leads to its pod, from everywhere and from the pod itself; one address to one pod.
func TestRoutedFloating(t *testing.T) {
	n, _ := wishingNode(t)
	const word = "cni.projectcalico.org/floatingIPs"
	a := n.saying(calicoOpen, "web-0", word, `["198.51.100.7","198.51.100.8","2001:db8:7::7"]`,
		"cni.projectcalico.org/ipAddrs", `["10.8.0.33","fd00:8::33"]`)
	b := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrs", `["10.8.0.34","fd00:8::34"]`)
	n.add(a)
	n.add(b)
	for _, addr := range []string{"198.51.100.7", "198.51.100.8", "2001:db8:7::7"} {
		nettest.Run(t, b.Netns, "ping", "-c1", "-W20", addr)
	}
	nettest.Run(t, nil, "ip", "route", "add", "198.51.100.0/24", "dev", "lo") // a node has a default route
	defer nettest.Run(t, nil, "ip", "route", "del", "198.51.100.0/24", "dev", "lo")
	nettest.Run(t, nil, "ping", "-c1", "-W20", "198.51.100.7")
	nettest.Run(t, a.Netns, "ping", "-c1", "-W20", "198.51.100.7")
	if err := n.Check(t.Context(), a); err != nil {
		t.Error(err)
	}
	taken := n.saying(calicoOpen, "web-2", word, `["198.51.100.8"]`)
	_, err := n.Add(t.Context(), taken)
	wantCode(t, "taken", err, model.CodeInUse, "address 198.51.100.8 is taken by pod default/web-0 (attachment net/"+
		a.Request.ContainerID)
	_, err = n.Add(t.Context(), n.saying(calicoOpen, "web-3", word, `["2001:db8:7::9"]`))
	wantCode(t, "other family", err, model.CodeInvalidConf, "2001:db8:7::9: the pod has no address of its family")
	if err := n.Del(t.Context(), a); err != nil {
		t.Error(err)
	}
	if out, err := nettest.Try(b.Netns, "ping", "-c1", "-W1", "198.51.100.7"); err == nil {
		t.Errorf("after DEL it still leads to the pod: %s", out)
	}
	n.add(taken)
	for _, job := range []attach.Job{b, taken} {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	n.clean("DEL")
}

// A pod may send from prefixes in addition to its own addresses.
func TestRoutedSourcePrefixes(t *testing.T) {
	n, _ := wishingNode(t)
	a := n.saying(calicoOpen, "web-0", "cni.projectcalico.org/allowedSourcePrefixes", `["192.168.77.0/24","fd77::/64"]`,
		"cni.projectcalico.org/ipAddrs", `["10.8.0.33","fd00:8::33"]`)
	n.add(a)
	for _, addr := range []string{"192.168.77.5/32", "192.168.78.5/32", "fd77::5/128", "fd78::5/128"} {
		nettest.Run(t, a.Netns, append([]string{"ip", "addr", "add", addr, "dev", "eth0"}, nodad(addr)...)...)
		nettest.Run(t, nil, "ip", "route", "add", addr, "dev", n.hostEnd(a))
	}
	nettest.Run(t, nil, "ip", "addr", "add", "fd00:9::9/128", "dev", "lo", "nodad")
	defer nettest.Run(t, nil, "ip", "addr", "del", "fd00:9::9/128", "dev", "lo")
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"192.168.77.5", "192.0.2.7", true},
		{"192.168.78.5", "192.0.2.7", false},
		{"fd77::5", "fd00:9::9", true},
		{"fd78::5", "fd00:9::9", false},
	} {
		// One that should be answered is sent again each second: the first may be lost while neighbors are resolved.
		limit := map[bool]string{true: "-w30", false: "-W1"}[tt.want]
		if out, err := nettest.Try(a.Netns, "ping", "-c1", limit, "-I", tt.from, tt.to); (err == nil) != tt.want {
			t.Errorf("from %s: %v %s", tt.from, err, out)
		}
	}
	if err := n.Check(t.Context(), a); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), a); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

func nodad(addr string) []string {
	if strings.Contains(addr, ":") {
		return []string{"nodad"}
	}
	return nil
}
