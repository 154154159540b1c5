// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
)

const someMappings = `{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":5353,"containerPort":53,"protocol":"udp"},
	{"hostPort":9999,"containerPort":99,"protocol":"sctp"},{"hostPort":8081,"containerPort":80,"protocol":"tcp","hostIP":"192.0.2.10"},
	{"hostPort":8082,"containerPort":80,"protocol":"tcp","hostIP":"2001:db8::1"},{"hostPort":8083,"containerPort":80,"protocol":"tcp","hostIP":"0.0.0.0"}`

// manyMappings returns more mappings than fit into one rule.
func manyMappings() string {
	var out []string
	for i := range 17 {
		out = append(
			out,
			strings.ReplaceAll(`{"hostPort":81NN,"containerPort":80,"protocol":"tcp"}`, "NN",
				string(rune('0'+i/10))+string(rune('0'+i%10))),
		)
	}
	return strings.Join(out, ",")
}

// natTables returns the nat tables as printed by iptables-save, without counters and headers.
func natTables(t *testing.T) string {
	t.Helper()
	var out []string
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		for line := range strings.Lines(nettest.Run(t, nil, program, "-t", "nat")) {
			if line, _, _ = strings.Cut(line, " ["); !strings.HasPrefix(line, "#") {
				out = append(out, program+": "+strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(out, "\n")
}

// The chains of the iptables backend equal the reference plugin's; each program removes what the other created.
func TestPortmapIPTablesIsTheReferences(t *testing.T) {
	bin := peerBin(t)
	for name, c := range map[string]struct{ options, mappings string }{
		"plain":   {`,"backend":"iptables"`, someMappings},
		"many":    {`,"backend":"iptables"`, manyMappings()},
		"no snat": {`,"backend":"iptables","snat":false`, someMappings},
		"masqAll": {`,"backend":"iptables","masqAll":true`, someMappings},
		"bit":     {`,"backend":"iptables","markMasqBit":5`, someMappings},
		"conditions": {
			`,"conditionsV4":["-s","198.51.100.0/24","!","-d","192.0.2.0/24"],"conditionsV6":["-m","comment","--comment","a word"]`, someMappings,
		},
		"external": {`,"externalSetMarkChain":"KUBE-MARK-MASQ"`, someMappings},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			flushed(t)
			ns := nettest.NS(t, "c1")
			bridge := mainPlugins()["bridge"]
			prev := h.must("bridge", "ADD", bridge, ns).stdout
			defer h.must("bridge", "DEL", bridge, ns)
			ports := mapped(prev, c.options, c.mappings)
			prepare := func() {
				for _, program := range []string{"iptables", "ip6tables"} {
					nettest.Run(t, nil, program, "-t", "nat", "-N", "KUBE-MARK-MASQ")
				}
			}
			prepare()
			sameJSON(t, prev, h.peer(bin, "portmap", "ADD", ports, ns))
			theirs := natTables(t)
			h.must("portmap", "DEL", ports, ns) // weft's, of theirs
			empty := natTables(t)
			if strings.Contains(empty, "CNI-DN-") {
				t.Errorf("weft's DEL leaves\n%s", empty)
			}
			nettest.Run(t, nil, "nft", "flush", "ruleset")
			prepare()
			sameJSON(t, prev, h.must("portmap", "ADD", ports, ns).stdout)
			if d := cmp.Diff(theirs, natTables(t)); d != "" {
				t.Errorf("iptables-save (-reference +weft):\n%s", d)
			}
			h.must("portmap", "CHECK", ports, ns)
			h.peer(bin, "portmap", "CHECK", ports, ns)
			h.peer(bin, "portmap", "DEL", ports, ns) // theirs, of weft's
			if left := natTables(t); strings.Contains(left, "CNI-DN-") {
				t.Errorf("the reference's DEL leaves\n%s", left)
			}
			if a := h.call("portmap", "CHECK", ports, ns); a.code() != 102 || !strings.Contains(a.stdout, "CNI-DN-") {
				t.Errorf("CHECK after the reference's DEL: %s", a.stdout)
			}
			h.must("portmap", "DEL", ports, ns)
			h.must("portmap", "ADD", ports, ns)
			h.must("portmap", "DEL", ports, ns)
			if d := cmp.Diff(empty, natTables(t)); d != "" {
				t.Errorf("what DEL leaves (-of the reference's +of weft's):\n%s", d)
			}
		})
	}
}

// weft's DEL removes the rules that the reference plugin created with nft, and those of no other container.
func TestPortmapOfTheReferencesNft(t *testing.T) {
	bin := peerBin(t)
	h := newHost(t)
	flushed(t)
	bridge := mainPlugins()["bridge"]
	var all []string
	for _, id := range []string{"first-container", "second-container"} {
		ns := nettest.NS(t, id)
		prev := h.must("bridge", "ADD", bridge, ns, "CNI_CONTAINERID="+id).stdout
		mappings := strings.ReplaceAll(someMappings, `"hostPort":`, `"hostPort":`+string(rune('1'+len(all))))
		ports := mapped(prev, `,"backend":"nftables"`, mappings)
		h.peerOf(bin, "portmap", "ADD", ports, ns, id)
		wantRules(t, "after ADD", id, true)
		all = append(all, ports)
	}
	h.must("portmap", "DEL", all[0], nil, "CNI_CONTAINERID=first-container")
	wantRules(t, "after DEL", "first-container", false)
	wantRules(t, "after DEL", "second-container", true)
	h.must("portmap", "DEL", all[1], nil, "CNI_CONTAINERID=second-container")
	wantRules(t, "after DEL", "second-container", false)
	for _, id := range []string{"first-container", "second-container"} {
		h.must("bridge", "DEL", bridge, nil, "CNI_CONTAINERID="+id)
	}
}

// GC removes what the reference plugin left in iptables for deleted containers.
func TestPortmapGCOfTheReferences(t *testing.T) {
	bin := peerBin(t)
	h := newHost(t)
	flushed(t)
	bridge := mainPlugins()["bridge"]
	ids := []string{"first-container", "second-container"}
	for i, id := range ids {
		ns := nettest.NS(t, id)
		prev := h.must("bridge", "ADD", bridge, ns, "CNI_CONTAINERID="+id).stdout
		mappings := strings.ReplaceAll(someMappings, `"hostPort":`, `"hostPort":`+string(rune('1'+i)))
		h.peerOf(bin, "portmap", "ADD", mapped(prev, `,"backend":"iptables"`, mappings), ns, id)
	}
	gc := conf("1.1.0", "portmap", `,"cni.dev/valid-attachments":[{"containerID":"second-container","ifname":"eth0"}]`)
	h.must("portmap", "GC", gc, nil)
	wantRules(t, "after GC", "first-container", false)
	wantRules(t, "after GC", "second-container", true)
	h.must("portmap", "GC", strings.Replace(gc, "second", "no", 1), nil)
	wantRules(t, "after GC", "second-container", false)
	for _, id := range slices.Backward(ids) {
		h.must("bridge", "DEL", bridge, nil, "CNI_CONTAINERID="+id)
	}
}
