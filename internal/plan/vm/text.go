// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Text prints the plan for users; table prints a table in nft's syntax.
func (p Plan) Text(table func(state.Table) (string, error)) (string, error) {
	w := writer{table: table}
	if !p.Pod.Fragment.Pod.Empty() {
		w.line("pod:")
		w.space(p.Pod.Fragment.Pod)
		w.before(p.Pod.Restore.Pod)
	}
	for _, n := range p.Networks {
		head := fmt.Sprintf("network %s: %s", n.Interface.Name, n.Interface.Binding)
		if n.Interface.Plugin != "" {
			head += " by plugin " + n.Interface.Plugin
		}
		if n.PodLink != "" {
			head += " on " + n.PodLink
		}
		w.line("%s", head)
		w.space(n.Fragment.Pod)
		w.before(n.Restore.Pod)
		w.device(n.Device)
		if n.Guest != nil {
			w.guest(*n.Guest)
		}
	}
	return w.text.String(), w.err
}

type writer struct {
	text  strings.Builder
	table func(state.Table) (string, error)
	err   error
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.text, format+"\n", args...) }

// space prints the desired state of the pod.
func (w *writer) space(s state.Space) {
	lines, err := s.Lines(w.table)
	if err != nil && w.err == nil {
		w.err = err
	}
	for _, l := range lines {
		w.line("  %s", l)
	}
}

// before prints the state that undo restores.
func (w *writer) before(s state.Space) {
	if s.Empty() {
		return
	}
	w.line("  before:")
	inner := writer{table: w.table}
	inner.space(s)
	for line := range strings.Lines(inner.text.String()) {
		w.line("  %s", strings.TrimSuffix(line, "\n"))
	}
}

func (w *writer) device(d model.VMDevice) {
	var b strings.Builder
	word := func(key string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "0" && s != "false" {
			fmt.Fprintf(&b, " %s %s", key, s)
		}
	}
	word("pci", d.HostPCI)
	word("target", d.Target)
	if d.OnNode {
		b.WriteString(" on the node")
	}
	word("mac", d.MAC)
	word("mtu", d.MTU)
	word("model", d.Model)
	word("queues", d.Queues)
	word("boot", d.BootOrder)
	word("at", d.PCIAddress)
	word("index", d.ACPIIndex)
	if d.Down {
		b.WriteString(" down")
	}
	w.line("  device%s", b.String())
}

func (w *writer) guest(g model.GuestConfig) {
	only := ""
	if g.MAC != "" {
		only = " to " + g.MAC
	}
	w.line("  said on %s%s:", g.Link, only)
	if d := g.DHCP4; d != nil {
		w.line("    DHCP %s server %s%s mtu %d%s%s%s%s", d.Address, d.Server, address("router", d.Router), d.MTU,
			words("dns", d.DNS), words("search", d.Search),
			named("domain", d.Domain), named("hostname", d.Hostname))
		for _, r := range d.Routes {
			w.line("    DHCP route %s%s", r.Dst, address("via", r.GW))
		}
		if c := d.Options; !c.IsZero() {
			w.line("    DHCP%s%s%s%s", named("boot file", c.BootFileName), named("tftp", c.TFTPServerName),
				words("ntp", c.NTPServers), private(c.Private))
		}
	}
	if d := g.DHCP6; d != nil {
		w.line("    DHCPv6 %s%s%s", d.Address, words("dns", d.DNS), words("search", d.Search))
	}
	if r := g.RA; r != nil {
		prefix := "without a prefix"
		if r.Prefix.IsValid() {
			prefix = r.Prefix.String()
		}
		router := ""
		if r.NoRouter {
			router = " without a router"
		}
		w.line("    RA %s%s mtu %d%s%s", prefix, router, r.MTU, words("dns", r.DNS), words("search", r.Search))
	}
}

func address(key string, a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return " " + key + " " + a.String()
}

func named(key, value string) string {
	if value == "" {
		return ""
	}
	return " " + key + " " + value
}

func words[T any](key string, values []T) string {
	if len(values) == 0 {
		return ""
	}
	return " " + key + " " + strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ","), "[]")
}

func private(options []model.VMDHCPOption) string {
	var b strings.Builder
	for _, o := range options {
		fmt.Fprintf(&b, " option %d %q", o.Option, o.Value)
	}
	return b.String()
}
