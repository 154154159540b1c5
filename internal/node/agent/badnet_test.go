// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// badNetwork is a network that cannot be attached.
type badNetwork struct {
	name, config string // a network, where one is needed
	asked        string // behind two networks that can be had, but for a whole list of its own
	code         uint
	msg          string
	reason       string // of the event, FailedNetwork when empty
}

func (p *podnets) badNetworks() []badNetwork {
	const element = "annotation k8s.v1.cni.cncf.io/networks: element 3: "
	foreign := func(more string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","plugins":[%s,{"type":"foreign","mark":%q,%s}]}`, p.wire(5, ""),
			p.path("marks"), more)
	}
	return []badNetwork{
		{
			asked: "nonsuch", code: 7, reason: "NoNetworkFound",
			msg: element + "network default/nonsuch: there is no NetworkAttachmentDefinition nonsuch in namespace default",
		},
		{
			asked: "far/wire", code: 7,
			msg: element +
				"network far/wire: the node keeps namespaces apart (namespaceIsolation), and the pod is in namespace default",
		},
		{
			asked: "wire3@net1", code: 7,
			msg: "interface net1: both network default/wire1 and network default/wire3 are to have it",
		},
		{asked: "wire3@eth0", code: 7, msg: "network default/wire3: interface eth0: the name is taken by the first network"},
		{
			name: "broken", config: "{\n  \"type\": \"macvlan\",\n  \"master\": }", asked: "broken", code: 6,
			msg: "network default/broken: its configuration: line 3 column 13: invalid character '}' looking for beginning of value",
		},
		{
			asked: "[{\"name\":\"wire1\"},\n {\"name\": }]", code: 6,
			msg: "annotation k8s.v1.cni.cncf.io/networks: line 2 column 11: invalid character '}' looking for beginning of value",
		},
		{
			asked: `[{"name":"wire1","ips":"10.61.0.9"}]`, code: 6,
			msg: "annotation k8s.v1.cni.cncf.io/networks: element 1: ips is string, want list",
		},
		{
			asked: `[{"name":"wire1","default-route":["here"]}]`, code: 6,
			msg: `annotation k8s.v1.cni.cncf.io/networks: element 1: default-route: "here" is no address`,
		},
		{asked: "wire1@a/b/c", code: 7, msg: `annotation k8s.v1.cni.cncf.io/networks: "wire1@a/b/c" cannot be read`},
		{
			asked: `{"name":"wire3","ips":["10.9.9.9"]}`, code: 7,
			msg: "network default/wire3: ips: 10.9.9.9: in no range set that is still free for this attachment",
		},
		{
			asked: `{"name":"wire3","ips":["10.63.0.2"]}`, code: uint(model.CodeExhausted),
			msg: "network default/wire3: requested address 10.63.0.2 is not available in ipam.ranges[0] 10.63.0.1-10.63.0.254",
		},
		{
			asked: `{"name":"wire3","mac":"02:00:00:00:00:77"}`, code: uint(model.CodeInUse),
			msg: `network default/wire3: network "wire3": mac 02:00:00:00:00:77 is taken by another interface on master "up0"`,
		},
		{
			asked: `{"name":"wire3","mac":"02:00:00:00:00:01"},{"name":"wire3","mac":"02:00:00:00:00:01"}`, code: 7,
			msg: `annotation k8s.v1.cni.cncf.io/networks: elements 3 and 4 request one mac, "02:00:00:00:00:01"`,
		},
		{
			asked: `{"name":"wire3","bandwidth":{"ingressRate":1}}`, code: 2,
			msg: "network default/wire3: bandwidth: no plugin of network wire3 declares the capability bandwidth",
		},
		{
			name: "absent", config: `{"cniVersion":"1.0.0","type":"nobody"}`, asked: "absent", code: 7,
			msg: fmt.Sprintf(`network default/absent: plugin "nobody": no such program in %q`, os.Getenv(binVar)),
		},
		{
			name: "absent-ipam", config: `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","ipam":{"type":"nobody"}}`,
			asked: "absent-ipam", code: 7,
			msg: fmt.Sprintf(`network default/absent-ipam: ipam.type plugin "nobody": no such program in %q`, os.Getenv(binVar)),
		},
		{
			name: "hang", config: foreign(`"hang":"ADD"`), asked: "hang", code: 11,
			msg: "network default/hang: plugin foreign ADD: no answer in time: context deadline exceeded",
		},
		{
			name: "garbage", config: foreign(`"garbage":"<html>"`), asked: "garbage", code: 6,
			msg: "network default/garbage: plugin foreign ADD: result: line 1 column 1: invalid character '<' looking for beginning of value",
		},
		{
			name: "empty", config: foreign(`"garbage":" "`), asked: "empty", code: 6,
			msg: "network default/empty: plugin foreign ADD: result: empty",
		},
		{
			name: "fails", config: foreign(`"fail":"ADD"`), asked: "fails", code: 120,
			msg: "network default/fails: plugin foreign ADD: told to fail at ADD",
		},
	}
}

// TestBadNetworks: if a network cannot be attached, the pod's event and the runtime's error have the same one-sentence
// message, and the networks before it are rolled back exactly.
func TestBadNetworks(t *testing.T) {
	nettest.EndToEnd(t)
	p := newPodnets(t)
	p.usual()
	p.conf = `,"namespaceIsolation":true`
	p.network("far", "wire", p.wire(6, ""))
	bad := p.badNetworks()
	for _, b := range bad {
		if b.name != "" {
			p.network("default", b.name, b.config)
		}
	}
	p.start()
	// Another host has the address and the MAC that others resolve.
	p.pod("holder", `[{"name":"wire3","ips":["10.63.0.2"],"mac":"02:00:00:00:00:77"}]`)
	holder := nettest.NS(t, "holder")
	if err := p.addPod("holder", holder); err != nil {
		t.Fatalf("%v\n%s", err, p.log())
	}
	before, files := p.host(), p.files("multus")
	for i, b := range bad {
		pod, ns := fmt.Sprint("bad", i), nettest.NS(t, "bad")
		asked := "wire1,other," + b.asked
		if strings.HasPrefix(b.asked, "{") {
			asked = `[{"name":"wire1"},{"name":"other"},` + b.asked + "]"
		}
		if strings.HasPrefix(b.asked, "[") {
			asked = b.asked
		}
		p.pod(pod, asked)
		empty := inside(t, ns)
		code, msg := said(p.addPod(pod, ns))
		if code != b.code || msg != b.msg {
			t.Errorf("%s: code %d: %s\nwant %d: %s", b.asked, code, msg, b.code, b.msg)
		}
		reason := b.reason
		if reason == "" {
			reason = "FailedNetwork"
		}
		if reported := p.warning(pod); !strings.HasPrefix(reported, reason+": "+b.msg) || strings.Contains(reported, "\n") {
			t.Errorf("%s: event %s", b.asked, reported)
		}
		if now := inside(t, ns); now != empty {
			t.Errorf("%s: the pod has\n%s, had\n%s", b.asked, now, empty)
		}
		if diff := p.settled(before); diff != "" {
			t.Errorf("%s: left behind: %s", b.asked, diff)
		}
		if now := p.files("multus"); now != files {
			t.Errorf("%s: files %s", b.asked, now)
		}
	}
	if err := p.delPod("holder", holder); err != nil {
		t.Error(err)
	}
	p.stop()
	if n := p.records(); n != 0 {
		t.Errorf("%d records left", n)
	}
}

// TestHangsPermanently: a plugin whose DEL hangs does not block the rollback of other networks; its own rollback is
// completed when it works again, at the runtime's DEL or at the agent's start.
func TestHangsPermanently(t *testing.T) {
	nettest.EndToEnd(t)
	for _, how := range []string{"del", "start"} {
		t.Run(how, func(t *testing.T) {
			p := newPodnets(t)
			p.usual()
			p.network("default", "hang",
				fmt.Sprintf(`{"cniVersion":"1.0.0","plugins":[%s,{"type":"foreign","mark":%q,"hang":"any","awake":%q}]}`,
					p.wire(5, ""), p.path("marks"), p.path("awake")))
			p.start()
			p.pod("pod", "wire1,hang,wire2")
			ns, before := nettest.NS(t, "pod"), p.host()
			empty := inside(t, ns)
			code, msg := said(p.addPod("pod", ns))
			if code != uint(model.CodeTryAgain) ||
				!strings.HasPrefix(msg, "network default/hang: plugin foreign ADD: no answer in time: context deadline exceeded") ||
				!strings.Contains(msg, "undo of") {
				t.Errorf("code %d: %s", code, msg)
			}
			if reported := p.warning("pod"); !strings.Contains(reported, "network default/hang: plugin foreign ADD: no answer in time") {
				t.Errorf("event %s", reported)
			}
			if now := inside(t, ns); now != empty {
				t.Errorf("the pod has\n%s, had\n%s", now, empty)
			}
			if err := p.delPod("pod", ns); err == nil {
				t.Error("a DEL that could not be done is said to be done")
			}
			if err := os.WriteFile(p.path("awake"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if how == "start" {
				p.kill()
				p.start()
			} else if err := p.delPod("pod", ns); err != nil {
				t.Error(err)
			}
			if diff := p.settled(before); diff != "" {
				t.Errorf("left behind: %s", diff)
			}
			p.stop()
			if n := p.records(); n != 0 {
				t.Errorf("%d records left", n)
			}
		})
	}
}

// TestParallelNetworks: if the node's configuration enables it, the foreign plugins of a pod's networks are executed in
// parallel: each of these waits for the other. If one fails, all are rolled back.
func TestParallelNetworks(t *testing.T) {
	nettest.EndToEnd(t)
	p := newPodnets(t)
	p.usual()
	p.env = nil
	waits := func(i, other int, more string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","plugins":[%s,{"type":"foreign","mark":%q,"meets":"net%d"%s}]}`,
			p.wire(4+i, ""), p.path("marks"), other, more)
	}
	p.network("default", "a", waits(1, 2, ""))
	p.network("default", "b", waits(2, 1, ""))
	p.network("default", "bad", waits(2, 1, `,"garbage":"<html>"`))
	p.start()
	before, ns := p.host(), nettest.NS(t, "pod")
	empty := inside(t, ns)
	p.pod("pod", "a,b,wire1")
	p.pod("bad", "a,bad,wire1")
	p.conf = `,"parallelNetworks":true`
	if err := p.addPod("pod", ns); err != nil {
		t.Fatalf("%v\n%s", err, p.log())
	}
	for link, prefix := range map[string]string{"eth0": "10.7.", "net1": "10.65.", "net2": "10.66.", "net3": "10.61."} {
		if out := nettest.Run(t, ns, "ip", "-4", "-o", "addr", "show", "dev", link); !strings.Contains(out, prefix) {
			t.Errorf("%s: %s", link, out)
		}
	}
	if err := p.delPod("pod", ns); err != nil {
		t.Error(err)
	}
	if diff := p.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	code, msg := said(p.addPod("bad", ns))
	if code != 6 || !strings.HasPrefix(msg, "network default/bad: plugin foreign ADD: result: line 1") {
		t.Errorf("code %d: %s", code, msg)
	}
	if diff := p.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	if now := inside(t, ns); now != empty {
		t.Errorf("the pod has\n%s, had\n%s", now, empty)
	}
}
