// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestPodsEqualThoseOfTheReferencePlugins compares addresses, routes and sysctls in the container and the node's
// addresses and routes with those that the reference plugins create for the same configuration.
func TestPodsEqualThoseOfTheReferencePlugins(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: pods are not compared with those of the reference plugins")
	}
	const head = `{"cniVersion":"1.0.0","name":"net",`
	const both = `"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00:1::/64"}]],"dataDir":"DIR",
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"192.168.0.0/16","gw":"10.1.0.1","priority":50},{"dst":"fd09::/16"}]}`
	for name, conf := range map[string]string{
		"ptp":    head + `"type":"ptp","mtu":1400,` + both + "}",
		"bridge": head + `"type":"bridge","bridge":"br0","isGateway":true,"mtu":1400,` + both + "}",
		"bridge-default": head +
			`"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":"DIR"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			ref, refPod := nettest.NS(t, "ref"), nettest.NS(t, "refpod")
			reference(t, bin, ref, refPod, strings.ReplaceAll(conf, "DIR", t.TempDir()))
			n := newNode(t, strings.ReplaceAll(conf, "DIR", t.TempDir()))
			pod := n.mustAdd("c1")
			if diff := cmp.Diff(inspectPod(t, refPod), inspectPod(t, pod.ns)); diff != "" {
				t.Errorf("container (-reference +weft):\n%s", diff)
			}
			if diff := cmp.Diff(inspectPod(t, ref), inspectPod(t, n.ns)); diff != "" {
				t.Errorf("node (-reference +weft):\n%s", diff)
			}
		})
	}
}

func reference(t *testing.T, bin string, node, pod *netns.NS, conf string) {
	t.Helper()
	var c struct{ Type string }
	if err := json.Unmarshal([]byte(conf), &c); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, c.Type))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_NETNS="+pod.Path(), "CNI_IFNAME=eth0",
		"CNI_PATH="+bin)
	cmd.Stdin = strings.NewReader(conf)
	var out strings.Builder
	cmd.Stdout = &out
	if err := node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
}

// inspectPod lists what can be compared: no link-local addresses, no generated names, and not the route to a single
// IPv6 address of the namespace itself, which the local table has anyway and weft does not add.
func inspectPod(t *testing.T, ns *netns.NS) []string {
	t.Helper()
	var out, own []string
	var links []struct {
		Name  string `json:"ifname"`
		MTU   int    `json:"mtu"`
		Flags []string
		Addrs []struct {
			Local, Scope string
			PrefixLen    int
		} `json:"addr_info"`
	}
	parse(t, nettest.Run(t, ns, "ip", "-j", "addr"), &links)
	for _, l := range links {
		if l.Name == "lo" {
			continue
		}
		out = append(out, fmt.Sprintf("link %s mtu %d up %v", common(l.Name), l.MTU, slices.Contains(l.Flags, "UP")))
		for _, a := range l.Addrs {
			if own = append(own, a.Local); a.Scope == "global" {
				out = append(out, fmt.Sprintf("addr %s/%d dev %s", a.Local, a.PrefixLen, common(l.Name)))
			}
		}
	}
	for _, family := range []string{"-4", "-6"} {
		var routes []struct {
			Dst, Gateway, Dev, Prefsrc string
			Metric                     int
		}
		parse(t, nettest.Run(t, ns, "ip", "-j", family, "route"), &routes)
		for _, r := range routes {
			if !strings.HasPrefix(r.Dst, "fe80:") && !slices.Contains(own, r.Dst) {
				out = append(out,
					fmt.Sprintf("route %s via %q dev %s src %q metric %d", r.Dst, r.Gateway, common(r.Dev), r.Prefsrc, r.Metric))
			}
		}
	}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		out = append(out, strings.TrimSpace(nettest.Run(t, ns, "sysctl", name)))
	}
	slices.Sort(out)
	return out
}

func parse(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

func common(link string) string {
	if strings.HasPrefix(link, "veth") {
		return "VETH"
	}
	return link
}
