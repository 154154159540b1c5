// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// told is the value of a link's setting as the link's own message told it.
func (v *view) told(s state.Sysctl) (value string, ok bool) {
	c, ok := sysctl.Of(s.Name)
	if !ok {
		return "", false
	}
	f, ok := v.links[c.Link]
	if !ok {
		return "", false
	}
	if c.IPv6 && c.Setting == sysctl.AddrGenMode {
		return strconv.Itoa(f.AddrGenMode), f.AddrGenMode >= 0
	}
	values := f.Conf4
	if c.IPv6 {
		values = f.Conf6
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

// carried tells whether a setting is written in its link's message: the address generation mode always, and what else
// the kernel takes there.
func (v *view) carried(s state.Sysctl) (c sysctl.Conf, ok bool) {
	c, ok = sysctl.Of(s.Name)
	if !ok {
		return c, false
	}
	f, there := v.links[c.Link]
	if !there {
		return c, false
	}
	if c.IPv6 && c.Setting == sysctl.AddrGenMode {
		return c, f.AddrGenMode >= 0 || v.made[c.Link]
	}
	return c, c.Rides() && (len(f.Conf4) > 0 || v.made[c.Link])
}

// readSysctls reads what no link told and what was not read before. Those of a link that was just made are written
// without asking.
func (v *view) readSysctls(context.Context) error {
	var names []string
	for _, s := range v.want.Sysctls {
		c, _ := sysctl.Of(s.Name)
		_, told := v.told(s)
		_, carried := v.carried(s)
		if _, read := v.values[s.Name]; !told && !carried && !read && !v.made[c.Link] {
			names = append(names, s.Name)
		}
	}
	return v.readFiles(names)
}

func (v *view) readFiles(names []string) error {
	if len(names) == 0 {
		return nil
	}
	values, err := v.conn.conf.Read(names)
	maps.Copy(v.values, values)
	return err
}

// hasSysctl tells the value that is there and whether it is the wanted one.
func (v *view) hasSysctl(want state.Sysctl) (have string, equal bool) {
	text := strings.Join(strings.Fields(want.Value), " ")
	if value, ok := v.told(want); ok {
		return value, value == text
	}
	value, read := v.values[want.Name]
	switch {
	case !read:
		return "not known", false
	case value.Missing:
		return "no such setting", want.IfPresent
	case value.Hidden:
		return "", false
	}
	return value.Text, value.Text == text
}

// carry is the requests that write the settings of links which travel in link messages.
func (v *view) carry() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, s := range v.want.Sysctls {
		c, ok := v.carried(s)
		if _, equal := v.hasSysctl(s); !ok || equal {
			continue
		}
		value, err := strconv.ParseInt(strings.TrimSpace(s.Value), 0, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		m := link.Configure(v.links[c.Link].Index, s, c.IPv6, c.Number(), uint32(int32(value)))
		if s.IfPresent {
			m.Forgiving(unix.EAFNOSUPPORT, unix.EOPNOTSUPP)
		}
		batch = append(batch, m)
	}
	return batch, nil
}

// writeSysctls writes the others, as far as which wants them.
func (v *view) writeSysctls(which func(state.Sysctl) bool) error {
	var pairs []sysctl.Pair
	for _, want := range v.want.Sysctls {
		if _, carried := v.carried(want); carried || !which(want) {
			continue
		}
		if _, equal := v.hasSysctl(want); equal {
			continue
		}
		if v.values[want.Name].Missing {
			return in(v.name, fmt.Errorf("%s: no such setting", want))
		}
		pairs = append(pairs, sysctl.Pair{Name: want.Name, Value: want.Value, IfPresent: want.IfPresent})
		v.values[want.Name] = sysctl.Value{Text: want.Value}
	}
	if len(pairs) == 0 {
		return nil
	}
	return in(v.name, v.conn.conf.Write(pairs))
}

func aboutLink(s state.Sysctl) bool {
	_, ok := sysctl.Of(s.Name)
	return ok
}

// writeGlobals writes the settings that are about no link, before there are new links: they may say what a new link
// begins with.
func (v *view) writeGlobals() error {
	if v.conn == nil {
		return nil
	}
	var names []string
	for _, s := range v.want.Sysctls {
		if !aboutLink(s) {
			names = append(names, s.Name)
		}
	}
	if err := v.readFiles(names); err != nil {
		return in(v.name, err)
	}
	return v.writeSysctls(func(s state.Sysctl) bool { return !aboutLink(s) })
}

// enableIPv6 switches IPv6 on where somebody, usually the pod's runtime, switched it off and an address of the plan needs
// it: on the address's link and on lo. The link itself tells, because a setting of a pod is slow to find: the kernel's
// cache of /proc/sys has one entry for each namespace under the same name.
func (v *view) enableIPv6() error {
	var pairs []sysctl.Pair
	for _, a := range v.want.Addrs {
		name := "net/ipv6/conf/" + a.Link + "/disable_ipv6"
		have, told := v.told(state.Sysctl{Name: name})
		same := func(p sysctl.Pair) bool { return p.Name == name }
		if a.Absent || !a.Prefix.Addr().Is6() || !told || have == "0" || slices.ContainsFunc(pairs, same) {
			continue
		}
		pairs = append(pairs, sysctl.Pair{Name: name, Value: "0"})
	}
	if len(pairs) == 0 {
		return nil
	}
	return in(v.name, v.conn.conf.Write(append(pairs, sysctl.Pair{Name: "net/ipv6/conf/lo/disable_ipv6", Value: "0"})))
}
