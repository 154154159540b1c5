// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// A list whose ADD failed because a plugin rejects its configuration is deleted with the same configuration. The
// runtime calls the DEL of the plugin that created the interface only if those of all later plugins succeed.
func TestDelOfRefused(t *testing.T) {
	for typ, configurations := range map[string][]string{
		"bandwidth": {`,"ingressRate":-1,"ingressBurst":5`, `,"ingressRate":"x"`},
		"bridge":    {`,"mtu":20`, `,"vlan":5000`, `,"vlan":"x"`, `,"ipam":7`},
		"dummy":     {`,"ipam":[]`},
		"firewall":  {`,"backend":"pf"`, `,"ingressPolicy":"none"`, `,"iptablesAdminChainName":"a b"`, `,"backend":5`},
		"flannel":   {`,"delegate":{"type":"flannel"}`, `,"delegate":5`, `,"dataDir":5`},
		"host-device": {
			``, `,"device":"lo"`, `,"device":"a","hwaddr":"02:00:00:00:00:01"`, `,"pciBusID":"../x"`, `,"device":1`,
		},
		"ipvlan":  {`,"mode":"l9"`, `,"mtu":1`},
		"macvlan": {`,"mode":"l9"`, `,"mtu":1`},
		"portmap": {`,"snat":"x"`, `,"runtimeConfig":{"portMappings":[{"hostPort":99999,"containerPort":1,"protocol":"x"}]}`},
		"ptp":     {`,"mtu":1`, ``},
		"sbr":     {`,"table":0`, `,"table":"x"`},
		"tap":     {`,"owner":-5`, `,"mac":"x"`},
		"tuning": {
			`,"mtu":20`, `,"mac":"x"`, `,"sysctl":{"kernel.x":"1"}`, `,"sysctl":5`, `,"dataDir":"rel"`, `,"txQLen":-1`,
		},
		"vlan": {`,"vlanId":9999`, ``},
		"vrf":  {``, `,"vrfname":"a/b"`, `,"vrfname":"v","table":254`, `,"table":"x"`},
	} {
		h := newHost(t)
		ns := nettest.NS(t, "c1")
		for _, rest := range configurations {
			for _, c := range []string{
				conf("1.0.0", typ, rest),
				conf("1.0.0", typ, rest+`,"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.6.0.2/24"}]}`),
				conf("1.0.0", typ, rest+`,"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.6.0.2"}]}`),
				conf("1.0.0", typ, rest+`,"prevResult":5`),
			} {
				if a := h.call(typ, "ADD", c, ns); a.exit == 0 {
					t.Errorf("ADD is not refused: %s", c)
				}
				if a := h.call(typ, "DEL", c, ns); a.exit != 0 {
					t.Errorf("DEL of %s: %s", c, a.stdout)
				}
			}
		}
	}
}

// The DEL of a list reaches the bridge, and tuning restores what its file contains even if another key of the
// configuration is invalid.
func TestDelOfRefusedList(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	result := h.must("bridge", "ADD", conf("1.0.0", "bridge", bridged), ns).stdout
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "c1_eth0.json"), []byte(`{"mtu": 1300}`), 0o600); err != nil {
		t.Fatal(err)
	}
	prev := `,"prevResult":` + result
	tuning := conf("1.0.0", "tuning", `,"mtu":20,"dataDir":"`+dir+`"`+prev)
	if a := h.call("tuning", "ADD", tuning, ns); a.code() != 7 {
		t.Errorf("ADD of tuning: %s", a.stdout)
	}
	h.must("tuning", "DEL", tuning, ns)
	if link := nettest.Run(t, ns, "ip", "link", "show", "eth0"); !strings.Contains(link, "mtu 1300 ") {
		t.Errorf("after tuning's DEL: %s", link)
	}
	if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
		t.Errorf("tuning's file is left: %v", left)
	}
	h.must("bridge", "DEL", conf("1.0.0", "bridge", bridged+prev), ns)
	if left, _ := filepath.Glob(h.data + "/n/1*"); len(left) > 0 {
		t.Errorf("addresses: %v", left)
	}
	if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
		t.Errorf("eth0 is there after DEL: %s", out)
	}
}
