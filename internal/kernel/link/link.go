// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// Found is a link as the kernel has it, with properties that plans do not name.
type Found struct {
	state.Link
	Index       int
	MasterIndex int
	// PeerIndex is the index of the other end, or of the parent.
	PeerIndex int
	Group     uint32
	// PeerAway means that the other end is in another namespace.
	PeerAway bool
	// AddrGenMode is how the kernel makes the IPv6 link-local address (0 EUI-64, 1 none), -1 when IPv6 is off.
	AddrGenMode int
	// Conf4 and Conf6 are the settings of net/ipv4/conf/LINK and net/ipv6/conf/LINK by the kernel's numbers; empty when
	// the link has none.
	Conf4, Conf6 []uint32
}

// DeadGroup is the link group of links that wait to be deleted: "weft" in ASCII.
const DeadGroup = 0x77656674

// Dead reports whether a link waits to be deleted, by the reaper or with its other end.
func (f Found) Dead() bool { return f.Group == DeadGroup }

func ifinfo(index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

const noStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS: an answer of 700 bytes instead of 1,500

// Get requests a link by name.
func Get(name string) *rtnl.Message {
	m := rtnl.New(unix.RTM_GETLINK, 0, "read link", rtnl.Name(name), ifinfo(0, 0, 0)).Forgiving(unix.ENODEV)
	if len(name) < unix.IFNAMSIZ {
		m.String(unix.IFLA_IFNAME, name)
	} else {
		m.String(unix.IFLA_ALT_IFNAME, name)
	}
	m.Uint32(unix.IFLA_EXT_MASK, noStats)
	return m
}

// GetIndex requests a link by index.
func GetIndex(index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_GETLINK, 0, "read link", rtnl.Name(strconv.Itoa(index)),
		ifinfo(index, 0, 0)).Forgiving(unix.ENODEV)
	m.Uint32(unix.IFLA_EXT_MASK, noStats)
	return m
}

// DecodeFlags returns from RTM_NEWLINK whether a link is up, and whether it has a carrier (IFF_LOWER_UP).
func DecodeFlags(body []byte) (up, carrier bool) {
	if len(body) < unix.SizeofIfInfomsg {
		return false, false
	}
	flags := binary.NativeEndian.Uint32(body[8:])
	return flags&unix.IFF_UP != 0, flags&unix.IFF_LOWER_UP != 0
}

// List requests all links, or those enslaved to the master of that index unless it is 0.
func List(master int) *rtnl.Message {
	m := rtnl.New(unix.RTM_GETLINK, 0, "read", rtnl.Name("links"), ifinfo(0, 0, 0))
	m.Uint32(unix.IFLA_EXT_MASK, noStats)
	if master != 0 {
		m.Uint32(unix.IFLA_MASTER, uint32(master))
	}
	return m
}

// vethInfoPeer is VETH_INFO_PEER of linux/veth.h.
const vethInfoPeer = 1

// Create requests a new link of that index. The same request makes a veth's other end: with its name, MAC and MTU, and
// in the namespace of the descriptor unless that is negative. Both ends have one queue: a second one costs an RCU wait.
func Create(l state.Link, index, master int, peer *state.Link, peerIndex, peerNS int) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "create", l, ifinfo(index, 0, 0))
	describe(m, l)
	if master != 0 {
		m.Uint32(unix.IFLA_MASTER, uint32(master))
	}
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.Attr(unix.IFLA_INFO_KIND, []byte(l.Kind))
		if peer == nil {
			attrs(m, l)
			return
		}
		m.Nest(unix.IFLA_INFO_DATA, func() {
			m.Nest(vethInfoPeer, func() {
				m.Raw(ifinfo(peerIndex, 0, 0))
				describe(m, *peer)
				if peerNS >= 0 {
					m.Uint32(unix.IFLA_NET_NS_FD, uint32(peerNS))
				}
			})
		})
	})
	return m
}

func describe(m *rtnl.Message, l state.Link) {
	m.String(unix.IFLA_IFNAME, l.Name)
	if !l.MAC.IsZero() {
		m.Attr(unix.IFLA_ADDRESS, l.MAC[:])
	}
	if l.MTU != 0 {
		m.Uint32(unix.IFLA_MTU, uint32(l.MTU))
	}
	if l.TxQLen != nil {
		m.Uint32(unix.IFLA_TXQLEN, uint32(*l.TxQLen))
	}
	if l.Kind == state.Veth {
		queues := uint32(max(l.Queues, 1))
		m.Uint32(unix.IFLA_NUM_TX_QUEUES, queues)
		m.Uint32(unix.IFLA_NUM_RX_QUEUES, queues)
	}
}

// Delete requests the deletion of a link.
func Delete(index int, name string) *rtnl.Message {
	return rtnl.New(unix.RTM_DELLINK, 0, "delete link", rtnl.Name(name), ifinfo(index, 0, 0)).Forgiving(unix.ENODEV)
}

// DeleteGroup requests the deletion of all links of a group, at the cost of one.
func DeleteGroup(group uint32) *rtnl.Message {
	// The kernel returns ENODEV for an empty group.
	m := rtnl.New(unix.RTM_DELLINK, 0, "delete", rtnl.Name("dead links"), ifinfo(0, 0, 0)).Forgiving(unix.ENODEV)
	m.Uint32(unix.IFLA_GROUP, group)
	return m
}

// SetUp requests an administrative state.
func SetUp(index int, name string, up bool) *rtnl.Message {
	flags, verb := uint32(0), "take down link"
	if up {
		flags, verb = unix.IFF_UP, "bring up link"
	}
	return rtnl.New(unix.RTM_NEWLINK, 0, verb, rtnl.Name(name), ifinfo(index, flags, unix.IFF_UP))
}

// Change has the new values of an existing link; nil and zero change nothing.
type Change struct {
	MAC      state.MAC
	MTU      int
	TxQLen   *int
	Up       *bool
	Promisc  *bool
	AllMulti *bool
	Master   *int // 0 removes the link from its master
	Alias    string
	Name     string // renames
	Group    *uint32
	Port     *state.PortAttrs
}

// Set requests a change.
func Set(index int, name string, c Change) *rtnl.Message {
	var flags, mask uint32
	bit := func(v *bool, f uint32) {
		if v == nil {
			return
		}
		mask |= f
		if *v {
			flags |= f
		}
	}
	bit(c.Up, unix.IFF_UP)
	bit(c.Promisc, unix.IFF_PROMISC)
	bit(c.AllMulti, unix.IFF_ALLMULTI)
	m := rtnl.New(unix.RTM_NEWLINK, 0, "set link", rtnl.Name(name), ifinfo(index, flags, mask))
	if !c.MAC.IsZero() {
		m.Attr(unix.IFLA_ADDRESS, c.MAC[:])
	}
	if c.MTU != 0 {
		m.Uint32(unix.IFLA_MTU, uint32(c.MTU))
	}
	if c.TxQLen != nil {
		m.Uint32(unix.IFLA_TXQLEN, uint32(*c.TxQLen))
	}
	if c.Master != nil {
		m.Uint32(unix.IFLA_MASTER, uint32(*c.Master))
	}
	if c.Name != "" {
		m.String(unix.IFLA_IFNAME, c.Name)
	}
	if c.Alias != "" {
		m.Attr(unix.IFLA_IFALIAS, []byte(c.Alias))
	}
	if c.Group != nil {
		m.Uint32(unix.IFLA_GROUP, *c.Group)
	}
	if c.Port != nil {
		port(m, *c.Port)
	}
	return m
}

// Decode decodes RTM_NEWLINK. Master and peer remain indexes: the caller looks up the names.
func Decode(body []byte) (Found, bool) {
	if len(body) < unix.SizeofIfInfomsg {
		return Found{}, false
	}
	f := Found{Index: int(int32(binary.NativeEndian.Uint32(body[4:]))), AddrGenMode: -1}
	flags := binary.NativeEndian.Uint32(body[8:])
	f.Up = truth(flags&unix.IFF_UP != 0)
	f.AllMulti = truth(flags&unix.IFF_ALLMULTI != 0)
	f.Promisc = truth(flags&unix.IFF_PROMISC != 0)
	for kind, data := range netlink.Attrs(body[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			f.Name = text(data)
		case unix.IFLA_ADDRESS:
			if len(data) == len(f.MAC) {
				f.MAC = state.MAC(data)
			}
		case unix.IFLA_MTU:
			f.MTU = int(number(data))
		case unix.IFLA_TXQLEN:
			n := int(number(data))
			f.TxQLen = &n
		case unix.IFLA_MASTER:
			f.MasterIndex = int(number(data))
		case unix.IFLA_LINK:
			f.PeerIndex = int(number(data))
		case unix.IFLA_LINK_NETNSID:
			f.PeerAway = true
		case unix.IFLA_IFALIAS:
			f.Alias = text(data)
		case unix.IFLA_GROUP:
			f.Group = number(data)
		case unix.IFLA_LINKINFO:
			f.info(data)
		case unix.IFLA_AF_SPEC:
			f.families(data)
		}
	}
	return f, f.Name != ""
}

func (f *Found) info(data []byte) {
	var details []byte
	for kind, data := range netlink.Attrs(data) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			f.Kind = state.Kind(text(data))
		case unix.IFLA_INFO_DATA:
			details = data
		case unix.IFLA_INFO_SLAVE_DATA:
			f.Port = decodePort(data)
		}
	}
	if details != nil {
		f.decodeAttrs(details)
	}
}

func (f *Found) families(data []byte) {
	for family, data := range netlink.Attrs(data) {
		for kind, data := range netlink.Attrs(data) {
			switch {
			case family == unix.AF_INET && kind == unix.IFLA_INET_CONF:
				f.Conf4 = numbers(data)
			case family == unix.AF_INET6 && kind == unix.IFLA_INET6_CONF:
				f.Conf6 = numbers(data)
			case family == unix.AF_INET6 && kind == unix.IFLA_INET6_ADDR_GEN_MODE && len(data) > 0:
				f.AddrGenMode = int(data[0])
			}
		}
	}
}

func numbers(b []byte) []uint32 {
	out := make([]uint32, 0, len(b)/4)
	for ; len(b) >= 4; b = b[4:] {
		out = append(out, binary.NativeEndian.Uint32(b))
	}
	return out
}

func truth(v bool) *bool { return &v }

func text(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}
