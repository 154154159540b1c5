// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// hookWord is a hook's name and number in a family.
type hookWord struct {
	name string
	n    uint32
}

func hooks(family byte) []hookWord {
	switch family {
	case unix.NFPROTO_NETDEV:
		return []hookWord{{"ingress", 0}, {"egress", 1}}
	case unix.NFPROTO_ARP:
		return []hookWord{{"input", 0}, {"output", 1}}
	}
	all := []hookWord{{"prerouting", 0}, {"input", 1}, {"forward", 2}, {"output", 3}, {"postrouting", 4}}
	if family == unix.NFPROTO_INET {
		all = append(all, hookWord{"ingress", 5})
	}
	return all
}

// HookNumber returns the kernel's number of a family's hook; an error if the family has none of that name.
func HookNumber(family byte, name string) (uint32, error) {
	for _, h := range hooks(family) {
		if h.name == name {
			return h.n, nil
		}
	}
	return 0, fmt.Errorf("hook %q: none of family %s", name, FamilyName(family))
}

// HookName is the inverse of HookNumber; an unknown number becomes hookN.
func HookName(family byte, n uint32) string {
	for _, h := range hooks(family) {
		if h.n == n {
			return h.name
		}
	}
	return fmt.Sprintf("hook%d", n)
}

// priorityWord is a name that nft prints for a priority; only restricts it to one hook.
type priorityWord struct {
	name string
	n    int32
	only string
}

func priorities(family byte) []priorityWord {
	if family == unix.NFPROTO_BRIDGE {
		return []priorityWord{
			{"dstnat", -300, "prerouting"}, {"filter", -200, ""}, {"out", 100, "output"}, {"srcnat", 300, "postrouting"},
		}
	}
	if family == unix.NFPROTO_ARP || family == unix.NFPROTO_NETDEV {
		return []priorityWord{{"filter", 0, ""}}
	}
	return []priorityWord{
		{"raw", -300, ""},
		{"mangle", -150, ""},
		{"dstnat", -100, "prerouting"},
		{"filter", 0, ""},
		{"security", 50, ""},
		{"srcnat", 100, "postrouting"},
	}
}

// priorityText prints a priority as nft does: by its name, or by a name at most ten away, or as a number.
func priorityText(family byte, hook string, prio int32) string {
	for _, p := range priorities(family) {
		if p.only != "" && p.only != hook {
			continue
		}
		switch d := prio - p.n; {
		case d == 0:
			return p.name
		case d > 0 && d <= 10:
			return fmt.Sprintf("%s + %d", p.name, d)
		case d < 0 && d >= -10:
			return fmt.Sprintf("%s - %d", p.name, -d)
		}
	}
	return strconv.Itoa(int(prio))
}
