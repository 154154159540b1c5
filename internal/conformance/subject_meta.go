// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/netns"
)

// metaSubjects returns the chained plugins; the kit creates the interface.
func metaSubjects() []*subject {
	list := []*subject{
		{
			typ: "portmap", needs: []string{"veth"}, verifyWork: verifyPortMapping,
			damages: []damage{{"its packet filter rules", flushRuleset}},
			conf: func(_ *world, p *pod) map[string]any {
				return map[string]any{"capabilities": map[string]any{"portMappings": true}, "runtimeConfig": map[string]any{
					"portMappings": []any{map[string]any{"hostPort": hostPort(p), "containerPort": 80, "protocol": "tcp"}},
				}}
			},
		},
		{
			typ: "bandwidth", needs: []string{"veth"}, verifyWork: verifyShaping,
			damages: []damage{{"its queueing disciplines", removeShaping}},
			conf: func(*world, *pod) map[string]any {
				return map[string]any{
					"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": 800_000,
				}
			},
		},
		{
			typ: "tuning", needs: []string{"veth"}, verifyWork: verifyTuning, damages: []damage{
				{"the MTU", func(_ *world, p *pod) error {
					return inPod(p, "eth0", func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1300) })
				}},
				{"the sysctl", func(_ *world, p *pod) error {
					return p.ns.Do(func() error { return os.WriteFile(tunedSysctl, []byte("77"), 0) })
				}},
			},
			conf: func(*world, *pod) map[string]any {
				return map[string]any{"mtu": tunedMTU, "sysctl": map[string]any{"net.core.somaxconn": tunedValue}}
			},
		},
		{
			typ: "firewall", needs: []string{"veth"}, verifyWork: verifyFirewall, damages: []damage{{"its packet filter rules", flushRuleset}},
			conf: func(*world, *pod) map[string]any { return nil },
		},
		{
			typ: "sbr", needs: []string{"veth"}, verifyWork: verifyRule, damages: []damage{{"its rule", removeRule}},
			conf: func(*world, *pod) map[string]any { return nil },
		},
		{
			typ: "vrf", needs: []string{"veth", "vrf"}, verifyWork: verifyVRF, damages: []damage{
				{"the link's VRF", func(_ *world, p *pod) error { return inPod(p, "eth0", netlink.LinkSetNoMaster) }},
			},
			conf: func(*world, *pod) map[string]any { return map[string]any{"vrfname": "kitvrf0"} },
		},
	}
	for _, s := range list {
		s.role, s.preparePod = metaPlugin, addPodInterface
	}
	return list
}

func hostPort(p *pod) int { return 18080 + p.n }

// hostLink, podAddress and podGateway describe the interface that the kit creates for chained plugins.
func hostLink(p *pod) string   { return fmt.Sprintf("kitv%d", p.n) }
func podAddress(p *pod) string { return fmt.Sprintf("10.22.%d.2", p.n) }
func podGateway(p *pod) string { return fmt.Sprintf("10.22.%d.1", p.n) }

// addPodInterface creates a veth pair with addresses and sets the result that a main plugin would have printed.
func addPodInterface(w *world, p *pod) error {
	err := w.host.Do(func() error {
		if err := addVeth(hostLink(p), p.ifName, p.ns); err != nil {
			return err
		}
		return addAddress(hostLink(p), podGateway(p)+"/24")
	})
	if err != nil {
		return err
	}
	var mac string
	err = p.ns.Do(func() error {
		if err := addAddress(p.ifName, podAddress(p)+"/24"); err != nil {
			return err
		}
		l, err := netlink.LinkByName(p.ifName)
		if err != nil {
			return err
		}
		mac = l.Attrs().HardwareAddr.String()
		if err := setUpLink("lo"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(podGateway(p))})
	})
	if err != nil {
		return err
	}
	ip := ipEntry(w.version, podAddress(p)+"/24", podGateway(p))
	ip["interface"] = 1
	p.prev, err = json.Marshal(map[string]any{
		"cniVersion": w.version,
		"interfaces": []any{
			map[string]any{"name": hostLink(p)},
			map[string]any{"name": p.ifName, "mac": mac, "sandbox": p.ns.Path()},
		},
		"ips":    []any{ip},
		"routes": []any{map[string]any{"dst": "0.0.0.0/0", "gw": podGateway(p)}},
		"dns":    map[string]any{"nameservers": []any{"10.22.0.53"}},
	})
	return err
}

func addAddress(link, prefix string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	return netlink.AddrAdd(l, a)
}

func inPod(p *pod, link string, do func(netlink.Link) error) error {
	return p.ns.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
		return do(l)
	})
}

// verifyPortMapping connects from the node to the host port.
func verifyPortMapping(w *world, p *pod) error {
	const timeout = 2 * time.Second
	var l net.Listener
	err := p.ns.Do(func() (err error) {
		l, err = net.Listen("tcp4", ":80")
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	return w.host.Do(func() error {
		d := net.Dialer{Timeout: timeout, FallbackDelay: -1}
		c, err := d.Dial("tcp4", net.JoinHostPort(podGateway(p), fmt.Sprint(hostPort(p))))
		if err != nil {
			return fmt.Errorf("the pod's port 80 is not reachable at host port %d: %w", hostPort(p), err)
		}
		return c.Close()
	})
}

func flushRuleset(w *world, _ *pod) error {
	_, err := runTool(w.ctx, w.host, "nft", "flush", "ruleset")
	return err
}

const shaperQdisc = "tbf"

// verifyShaping checks that there is a token bucket for each direction, on any link.
func verifyShaping(w *world, p *pod) error {
	host, pod, err := w.state(p)
	if err != nil {
		return err
	}
	n := 0
	for _, line := range slices.Concat(host, pod) {
		if strings.HasPrefix(line, "qdisc "+shaperQdisc) {
			n++
		}
	}
	if n < 2 {
		return fmt.Errorf("%d token buckets in the node and the pod, want 2", n)
	}
	return nil
}

func removeShaping(w *world, p *pod) error {
	for _, ns := range []*netns.NS{w.host, p.ns} {
		if err := ns.Do(removeShapingHere); err != nil {
			return err
		}
	}
	return nil
}

func removeShapingHere() error {
	list, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range list {
		found, err := netlink.QdiscList(l)
		if err != nil {
			return err
		}
		for _, q := range found {
			if q.Type() != shaperQdisc {
				continue
			}
			if err := netlink.QdiscDel(q); err != nil {
				return fmt.Errorf("qdisc of %s: %w", l.Attrs().Name, err)
			}
		}
	}
	return nil
}
