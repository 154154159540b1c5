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

// sysctls are the settings that a space names. Those of links are told by the links themselves, as far as these do, and
// some are written in their messages; all others are files below /proc/sys.
type sysctls struct {
	want  []state.Sysctl
	links *links
	files *sysctl.Files
	// values are those that were read from files, or written there.
	values map[string]sysctl.Value
}

// told is the value of a link's setting as the link's own message told it.
func (s *sysctls) told(want state.Sysctl) (value string, ok bool) {
	c, ok := sysctl.Of(want.Name)
	if !ok {
		return "", false
	}
	f, ok := s.links.get(c.Link)
	if !ok {
		return "", false
	}
	return c.Told(f.Conf4, f.Conf6, f.AddrGenMode)
}

// carried tells whether a setting is written in its link's message: the address generation mode always, and what else
// the kernel takes there.
func (s *sysctls) carried(want state.Sysctl) (c sysctl.Conf, ok bool) {
	c, ok = sysctl.Of(want.Name)
	if !ok {
		return c, false
	}
	f, there := s.links.get(c.Link)
	if !there {
		return c, false
	}
	if c.IPv6 && c.Setting == sysctl.AddrGenMode {
		return c, f.AddrGenMode >= 0 || s.links.made[c.Link]
	}
	return c, c.Rides() && (len(f.Conf4) > 0 || s.links.made[c.Link])
}

// read looks at what no link told and what was not read before. Those of a link that was just made are written
// without asking.
func (s *sysctls) read(context.Context) error {
	var names []string
	for _, want := range s.want {
		c, _ := sysctl.Of(want.Name)
		_, told := s.told(want)
		_, carried := s.carried(want)
		if _, read := s.values[want.Name]; !told && !carried && !read && !s.links.made[c.Link] {
			names = append(names, want.Name)
		}
	}
	return s.readFiles(names)
}

func (s *sysctls) readFiles(names []string) error {
	if len(names) == 0 {
		return nil
	}
	values, err := s.files.Read(names)
	maps.Copy(s.values, values)
	return err
}

// has tells the value that is there and whether it is the wanted one.
func (s *sysctls) has(want state.Sysctl) (have string, equal bool) {
	text := strings.Join(strings.Fields(want.Value), " ")
	if value, ok := s.told(want); ok {
		return value, value == text
	}
	value, read := s.values[want.Name]
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
func (s *sysctls) carry() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, want := range s.want {
		c, ok := s.carried(want)
		if _, equal := s.has(want); !ok || equal {
			continue
		}
		value, err := strconv.ParseInt(strings.TrimSpace(want.Value), 0, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", want, err)
		}
		m := link.Configure(s.links.index(c.Link), want, c.IPv6, c.Number(), uint32(int32(value)))
		if want.IfPresent {
			m.Forgiving(unix.EAFNOSUPPORT, unix.EOPNOTSUPP)
		}
		batch = append(batch, m)
	}
	return batch, nil
}

// write writes the others, as far as which wants them.
func (s *sysctls) write(which func(state.Sysctl) bool) error {
	var pairs []sysctl.Pair
	for _, want := range s.want {
		if _, carried := s.carried(want); carried || !which(want) {
			continue
		}
		if _, equal := s.has(want); equal {
			continue
		}
		if s.values[want.Name].Missing {
			return fmt.Errorf("%s: no such setting", want)
		}
		pairs = append(pairs, sysctl.Pair{Name: want.Name, Value: want.Value, IfPresent: want.IfPresent})
		s.values[want.Name] = sysctl.Value{Text: want.Value}
	}
	if len(pairs) == 0 {
		return nil
	}
	return s.files.Write(pairs)
}

func aboutLink(s state.Sysctl) bool {
	_, ok := sysctl.Of(s.Name)
	return ok
}

// writeGlobals writes the settings that are about no link, before there are new links: they may say what a new link
// begins with.
func (s *sysctls) writeGlobals() error {
	var names []string
	for _, want := range s.want {
		if !aboutLink(want) {
			names = append(names, want.Name)
		}
	}
	if err := s.readFiles(names); err != nil {
		return err
	}
	return s.write(func(want state.Sysctl) bool { return !aboutLink(want) })
}

// enableIPv6 switches IPv6 on where somebody, usually the pod's runtime, switched it off and an address needs it:
// on the address's link and on lo. The link itself tells, because a setting of a pod is slow to find: the kernel's
// cache of /proc/sys has one entry for each namespace under the same name.
func (s *sysctls) enableIPv6(of []state.Addr) error {
	var pairs []sysctl.Pair
	for _, a := range of {
		name := "net/ipv6/conf/" + a.Link + "/disable_ipv6"
		have, told := s.told(state.Sysctl{Name: name})
		same := func(p sysctl.Pair) bool { return p.Name == name }
		if a.Absent || !a.Prefix.Addr().Is6() || !told || have == "0" || slices.ContainsFunc(pairs, same) {
			continue
		}
		pairs = append(pairs, sysctl.Pair{Name: name, Value: "0"})
	}
	if len(pairs) == 0 {
		return nil
	}
	return s.files.Write(append(pairs, sysctl.Pair{Name: "net/ipv6/conf/lo/disable_ipv6", Value: "0"}))
}

// notifies tells whether a link is to say its addresses when it comes up.
func (s *sysctls) notifies(name string) bool {
	for _, want := range s.want {
		if want.Value != "0" &&
			(want.Name == "net/ipv4/conf/"+name+"/arp_notify" || want.Name == "net/ipv6/conf/"+name+"/ndisc_notify") {
			return true
		}
	}
	return false
}

func (s *sysctls) diff(out *diffs) {
	for _, want := range s.want {
		if have, equal := s.has(want); !equal && !s.values[want.Name].Hidden {
			out.add(want, have)
		}
	}
}

func (s *sysctls) tell(out *state.Space) {
	for _, want := range s.want {
		have, equal := s.has(want)
		if !equal && !s.values[want.Name].Hidden {
			want.Value = have
		}
		out.Sysctls = append(out.Sysctls, want)
	}
}
