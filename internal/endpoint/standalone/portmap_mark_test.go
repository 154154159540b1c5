// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// referenceChains creates the chains that the reference portmap never removes from a node, and an entry for a container
// if one is named.
func referenceChains(t *testing.T, container string) {
	t.Helper()
	for _, program := range []string{"iptables", "ip6tables"} {
		nettest.Run(t, nil, "sh", "-ec", strings.ReplaceAll(`
			ipt -N CNI-HOSTPORT-DNAT; ipt -N CNI-HOSTPORT-SETMARK; ipt -N CNI-HOSTPORT-MASQ
			ipt -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
			ipt -A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
			ipt -A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
			ipt -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
			ipt -I POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ`, "ipt", program+" -t nat"))
		if container != "" {
			nettest.Run(t, nil, "sh", "-ec", strings.ReplaceAll(strings.ReplaceAll(`ipt -N CNI-DN-0123456789abcdef01234
				ipt -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment 'dnat name: "n" id: "ID"' -m multiport --dports 9090 -j CNI-DN-0123456789abcdef01234`,
				"ipt", program+" -t nat"), "ID", container))
		}
	}
}

// A container sees the source address of connections to its hostPorts, also on a node where the reference portmap has
// run: its chain masquerades every packet with its mark.
func TestPortmapKeepsClientsWithReference(t *testing.T) {
	for name, options := range map[string]string{"its own mark": "", "the reference's mark": `,"markMasqBit":13`} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			flushed(t)
			world := beyond(t)
			ns := nettest.NS(t, "a")
			main := mainPlugins()["bridge"]
			prev := h.must("bridge", "ADD", main, ns).stdout
			defer h.must("bridge", "DEL", main, ns)
			referenceChains(t, "")
			serve(t, ns, "tcp", 80)
			ports := mapped(prev, options, `{"hostPort":8080,"containerPort":80,"protocol":"tcp"}`)
			h.must("portmap", "ADD", ports, ns)
			settled(t)
			for to, want := range map[string]string{"192.0.2.1:8080": "192.0.2.2", "[2001:db8::1]:8080": "2001:db8::2"} {
				if got := answered(world, "tcp", to, true); got != want {
					t.Errorf("%s: seen as %q, want %q", to, got, want)
				}
			}
			if got := answered(nil, "tcp", "127.0.0.1:8080", true); got == "" {
				t.Error("the node itself gets no answer")
			}
			if got := answered(ns, "tcp", "192.0.2.1:8080", true); got == "" {
				t.Error("the container gets no answer from itself")
			}
			h.must("portmap", "DEL", ports, ns)
		})
	}
}

// GC removes the reference portmap's shared chains when no container uses them, and not before.
func TestGCOfSharedPortChains(t *testing.T) {
	h := newHost(t)
	flushed(t)
	gc := func(id string) {
		t.Helper()
		h.must("portmap", "GC",
			conf("1.1.0", "portmap", `,"cni.dev/valid-attachments":[{"containerID":"`+id+`","ifname":"eth0"}]`), nil)
	}
	chains := func() int { return len(rules(t, "CNI-HOSTPORT")) }
	referenceChains(t, "c9")
	before := chains()
	gc("c9")
	if now := chains(); now != before {
		t.Errorf("%d rules beside a container that has mappings, were %d", now, before)
	}
	gc("another")
	if left := rules(t, "CNI-"); len(left) > 0 {
		t.Errorf("left after GC:\n%s", strings.Join(left, "\n"))
	}
}
