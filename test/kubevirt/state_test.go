// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// podState is the state of a pod, independent of the implementation that created it.
type podState struct {
	Links   map[string]link
	Routes  []string
	Sysctls map[string]string
	Rules   []string
}

type link struct {
	Kind, MAC, Master string
	MTU               int
	Up                bool
	Learning          string
	Addrs             []string
	Tap               map[string]any
}

// state returns the state of a pod.
func (p pod) state(t *testing.T) podState {
	t.Helper()
	out := podState{Links: map[string]link{}, Sysctls: map[string]string{}}
	var links []struct {
		Name     string   `json:"ifname"`
		MAC      string   `json:"address"`
		Master   string   `json:"master"`
		MTU      int      `json:"mtu"`
		Flags    []string `json:"flags"`
		LinkInfo struct {
			Kind  string         `json:"info_kind"`
			Data  map[string]any `json:"info_data"`
			Slave struct {
				Learning *bool `json:"learning"`
			} `json:"info_slave_data"`
		} `json:"linkinfo"`
		Addrs []struct {
			Local  string `json:"local"`
			Prefix int    `json:"prefixlen"`
			Scope  string `json:"scope"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(p.run(t, "ip", "-j", "-d", "addr")), &links); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		n := link{Kind: l.LinkInfo.Kind, Master: l.Master, MTU: l.MTU, Up: slices.Contains(l.Flags, "UP"), MAC: "its own"}
		if l.MAC == podMAC || strings.HasPrefix(l.MAC, "02:00:00:00:00:") {
			n.MAC = l.MAC
		}
		if on := l.LinkInfo.Slave.Learning; on != nil {
			n.Learning = map[bool]string{true: "on", false: "off"}[*on]
		}
		if n.Kind == "tun" {
			// The process that opens the tap chooses these flags.
			n.Tap = l.LinkInfo.Data
			delete(n.Tap, "pi")
			delete(n.Tap, "vnet_hdr")
		}
		for _, a := range l.Addrs {
			if !strings.HasPrefix(a.Local, "fe80:") {
				n.Addrs = append(n.Addrs, a.Local+"/"+itoa(a.Prefix))
			}
		}
		slices.Sort(n.Addrs)
		out.Links[l.Name] = n
	}
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(p.run(t, "ip", family, "route")) {
			line = strings.Join(strings.Fields(line), " ")
			if !strings.HasPrefix(line, "fe80::/") {
				out.Routes = append(out.Routes, line)
			}
		}
	}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.arp_ignore"} {
		out.Sysctls[name] = strings.TrimSpace(p.run(t, "sysctl", "-n", name))
	}
	for name, l := range out.Links {
		if l.Kind == "bridge" && l.Up {
			out.Sysctls["route_localnet "+name] = strings.TrimSpace(
				p.run(t, "sysctl", "-n", "net.ipv4.conf."+name+".route_localnet"),
			)
		}
	}
	out.Rules = normalizeRules(p.run(t, "nft", "list", "ruleset"))
	return out
}
