// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"strconv"
	"strings"
)

// Conf is a setting of one link, parsed from its name: net/ipv4/conf/LINK/Setting.
type Conf struct {
	IPv6    bool
	Link    string
	Setting string
}

// Of parses a name; false when it is not about one link.
func Of(name string) (Conf, bool) {
	if c, ok := ofNeighbors(name); ok {
		return c, true
	}
	rest, v4 := strings.CutPrefix(name, "net/ipv4/conf/")
	if !v4 {
		var v6 bool
		if rest, v6 = strings.CutPrefix(name, "net/ipv6/conf/"); !v6 {
			return Conf{}, false
		}
	}
	cut := strings.LastIndexByte(rest, '/')
	if cut <= 0 || rest[:cut] == "all" || rest[:cut] == "default" {
		return Conf{}, false
	}
	return Conf{IPv6: !v4, Link: rest[:cut], Setting: rest[cut+1:]}, true
}

// ofNeighbors parses net/FAMILY/neigh/LINK/Setting; the setting keeps "neigh/" in its name, to distinguish it from
// conf.
func ofNeighbors(name string) (Conf, bool) {
	rest, v4 := strings.CutPrefix(name, "net/ipv4/neigh/")
	v6 := false
	if !v4 {
		rest, v6 = strings.CutPrefix(name, "net/ipv6/neigh/")
	}
	cut := strings.LastIndexByte(rest, '/')
	if !v4 && !v6 || cut <= 0 || rest[:cut] == "default" {
		return Conf{}, false
	}
	return Conf{IPv6: v6, Link: rest[:cut], Setting: "neigh/" + rest[cut+1:]}, true
}

// AddrGenMode is the setting that has its own attribute in a link message.
const AddrGenMode = "addr_gen_mode"

// Number returns the index of a setting among those in the kernel's link messages, -1 when it is unknown (linux/ip.h
// IPV4_DEVCONF_*, linux/ipv6.h DEVCONF_*).
func (c Conf) Number() int {
	numbers := ipv4
	if c.IPv6 {
		numbers = ipv6
	}
	return numbers(c.Setting)
}

// WritableInLinkMessage reports whether the setting may be written in a link message: IPv4 settings whose file has no side effects.
func (c Conf) WritableInLinkMessage() bool {
	switch c.Setting {
	case "forwarding", "accept_local", "route_localnet":
		return false // writing the file also flushes caches or sends notifications
	}
	return !c.IPv6 && ipv4(c.Setting) >= 0
}

// InLinkMessage returns the value of a setting in its link's own message: by the kernel's numbers, and the address generation
// mode, which is -1 without IPv6.
func (c Conf) InLinkMessage(conf4, conf6 []uint32, addrGenMode int) (value string, ok bool) {
	if c.IPv6 && c.Setting == AddrGenMode {
		return strconv.Itoa(addrGenMode), addrGenMode >= 0
	}
	values := conf4
	if c.IPv6 {
		values = conf6
	}
	n := c.Number()
	if !c.IPv6 {
		n-- // IPv4 counts from 1
	}
	if n < 0 || n >= len(values) {
		return "", false
	}
	return strconv.Itoa(int(int32(values[n]))), true
}

// Settings returns the known names.
func Settings(v6 bool) []string {
	if v6 {
		return []string{
			"forwarding", "accept_ra", "accept_redirects", "autoconf", "router_solicitations", "proxy_ndp", "disable_ipv6",
			"accept_dad",
			"ndisc_notify", "keep_addr_on_down", AddrGenMode,
		}
	}
	return []string{
		"forwarding", "proxy_arp", "accept_redirects", "secure_redirects", "send_redirects", "rp_filter", "arp_filter",
		"arp_announce",
		"arp_ignore", "arp_accept", "arp_notify", "accept_local", "route_localnet",
	}
}

func ipv4(setting string) int {
	switch setting {
	case "forwarding":
		return 1
	case "proxy_arp":
		return 3
	case "accept_redirects":
		return 4
	case "secure_redirects":
		return 5
	case "send_redirects":
		return 6
	case "rp_filter":
		return 8
	case "arp_filter":
		return 13
	case "arp_announce":
		return 18
	case "arp_ignore":
		return 19
	case "arp_accept":
		return 21
	case "arp_notify":
		return 22
	case "accept_local":
		return 23
	case "route_localnet":
		return 26
	}
	return -1
}

func ipv6(setting string) int {
	switch setting {
	case "forwarding":
		return 0
	case "accept_ra":
		return 3
	case "accept_redirects":
		return 4
	case "autoconf":
		return 5
	case "router_solicitations":
		return 7
	case "proxy_ndp":
		return 22
	case "disable_ipv6":
		return 26
	case "accept_dad":
		return 27
	case "ndisc_notify":
		return 29
	case "keep_addr_on_down":
		return 42
	}
	return -1
}
