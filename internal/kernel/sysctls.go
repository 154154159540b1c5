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

// sysctls are the settings that a space names. Those of links are read from the links' messages if possible, and some
// are written in link messages; all others are files below /proc/sys.
type sysctls struct {
	want  []state.Sysctl
	links *links
	files *sysctl.Files
	// values are the values read from files, or written there.
	values map[string]sysctl.Value
	// changing is Conn.Changing.
	changing func(name, value string) error
}

// announce reports the previous value of a setting that is about to be changed, unless it is one of a link of weft: that
// is deleted with its settings.
func (s *sysctls) announce(want state.Sysctl) error {
	if s.changing == nil {
		return nil
	}
	if c, ok := sysctl.Of(want.Name); ok {
		f, there := s.links.get(c.Link)
		if !there || s.links.made[c.Link] || strings.HasPrefix(f.Alias, mark) {
			return nil
		}
	}
	have, equal := s.has(want)
	_, fromLink := s.fromLink(want)
	value, read := s.values[want.Name]
	if equal || !fromLink && (!read || value.Missing || value.Hidden) {
		return nil
	}
	if err := s.changing(want.Name, have); err != nil {
		return fmt.Errorf("%s: %w", want, err)
	}
	return nil
}

// fromLink returns the value of a link's setting in the link's own message.
func (s *sysctls) fromLink(want state.Sysctl) (value string, ok bool) {
	c, ok := sysctl.Of(want.Name)
	if !ok {
		return "", false
	}
	f, ok := s.links.get(c.Link)
	if !ok {
		return "", false
	}
	return c.InLinkMessage(f.Conf4, f.Conf6, f.AddrGenMode)
}

// inLinkMessage reports whether a setting is written in its link's message: the address generation mode always, and others
// that the kernel accepts there.
func (s *sysctls) inLinkMessage(want state.Sysctl) (c sysctl.Conf, ok bool) {
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
	return c, c.WritableInLinkMessage() && (len(f.Conf4) > 0 || s.links.made[c.Link])
}

// read reads the settings that are neither in a link's message nor known. Settings of a new link are written without
// reading.
func (s *sysctls) read(context.Context) error {
	var names []string
	for _, want := range s.want {
		c, _ := sysctl.Of(want.Name)
		_, fromLink := s.fromLink(want)
		_, carried := s.inLinkMessage(want)
		if _, read := s.values[want.Name]; !fromLink && !carried && !read && !s.links.made[c.Link] {
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

// has returns the existing value and reports whether it is the wanted one.
func (s *sysctls) has(want state.Sysctl) (have string, equal bool) {
	text := strings.Join(strings.Fields(want.Value), " ")
	if value, ok := s.fromLink(want); ok {
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

// linkBatch returns the requests for link settings that are written in link messages.
func (s *sysctls) linkBatch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, want := range s.want {
		c, ok := s.inLinkMessage(want)
		if _, equal := s.has(want); !ok || equal {
			continue
		}
		value, err := strconv.ParseInt(strings.TrimSpace(want.Value), 0, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", want, err)
		}
		if err := s.announce(want); err != nil {
			return nil, err
		}
		m := link.Configure(s.links.index(c.Link), want, c.IPv6, c.Number(), uint32(int32(value)))
		if want.IfPresent {
			m.Forgiving(unix.EAFNOSUPPORT, unix.EOPNOTSUPP)
		}
		batch = append(batch, m)
	}
	return batch, nil
}

// write writes the other settings that which selects.
func (s *sysctls) write(which func(state.Sysctl) bool) error {
	var pairs []sysctl.Pair
	for _, want := range s.want {
		if _, carried := s.inLinkMessage(want); carried || !which(want) {
			continue
		}
		if _, equal := s.has(want); equal {
			continue
		}
		if s.values[want.Name].Missing {
			return fmt.Errorf("%s: no such setting", want)
		}
		if err := s.announce(want); err != nil {
			return err
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

// writeGlobals writes the settings that are not about a link, before links are created: they may be defaults for new
// links.
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

// enableIPv6 enables IPv6 on links where it was disabled, usually by the pod's runtime, and an address needs it: on the
// address's link and on lo. It reads the setting from the link's message, because reading a pod's file is slow: the
// kernel's cache of /proc/sys has one entry for each namespace under the same name.
func (s *sysctls) enableIPv6(of []state.Addr) error {
	var pairs []sysctl.Pair
	for _, a := range of {
		name := "net/ipv6/conf/" + a.Link + "/disable_ipv6"
		have, fromLink := s.fromLink(state.Sysctl{Name: name})
		same := func(p sysctl.Pair) bool { return p.Name == name }
		if a.Absent || !a.Prefix.Addr().Is6() || !fromLink || have == "0" || slices.ContainsFunc(pairs, same) {
			continue
		}
		pairs = append(pairs, sysctl.Pair{Name: name, Value: "0"})
	}
	if len(pairs) == 0 {
		return nil
	}
	return s.files.Write(append(pairs, sysctl.Pair{Name: "net/ipv6/conf/lo/disable_ipv6", Value: "0"}))
}

// notifies reports whether a link announces its addresses when it comes up.
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

func (s *sysctls) report(out *state.Space) {
	for _, want := range s.want {
		have, equal := s.has(want)
		if !equal && !s.values[want.Name].Hidden {
			want.Value = have
		}
		out.Sysctls = append(out.Sysctls, want)
	}
}
