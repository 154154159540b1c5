// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// Handle is the handle of weft's root qdiscs.
const Handle = 0x7766 << 16

// The numbers of linux/pkt_sched.h and linux/rtnetlink.h.
const (
	headerLen     = 20 // struct tcmsg
	root          = 0xffffffff
	ingressParent = 0xfffffff1
	ingressHandle = 0xffff0000

	tbfParms  = 1
	tbfRate64 = 4
	tbfPeak64 = 5
	tbfBurst  = 6
	tbfPeakBy = 7
	tbfLen    = 36 // struct tc_tbf_qopt
	ethernet  = 1  // TC_LINKLAYER_ETHERNET
)

func header(index int, handle, parent, info uint32) []byte {
	b := make([]byte, headerLen)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], handle)
	binary.NativeEndian.PutUint32(b[12:], parent)
	binary.NativeEndian.PutUint32(b[16:], info)
	return b
}

// Set requests a qdisc on the link of that index; an existing one of ours is changed. For an Ingress it makes the qdisc
// and, with the index of the target link, the filter.
func Set(q state.Qdisc, index, redirect int) []*rtnl.Message {
	if q.Kind == state.Ingress {
		return []*rtnl.Message{newIngress(q, index), newFilter(q, index, redirect)}
	}
	m := rtnl.New(unix.RTM_NEWQDISC, unix.NLM_F_CREATE, "set", q, header(index, Handle, root, 0))
	m.String(unix.TCA_KIND, string(q.Kind))
	m.Nest(unix.TCA_OPTIONS, func() { tbf(m, q) })
	return []*rtnl.Message{m}
}

// tbf encodes a token bucket. The burst is in bytes: the alternative, ticks of 64 ns, is limited to 4 s.
func tbf(m *rtnl.Message, q state.Qdisc) {
	const rate32 = 1<<32 - 1
	b := make([]byte, tbfLen)
	b[1] = ethernet
	binary.NativeEndian.PutUint32(b[8:], uint32(min(q.Rate, rate32)))
	binary.NativeEndian.PutUint32(b[24:], q.Limit)
	if q.Peak != 0 {
		b[13] = ethernet
		binary.NativeEndian.PutUint32(b[20:], uint32(min(q.Peak, rate32)))
	}
	m.Attr(tbfParms, b)
	m.Uint32(tbfBurst, q.Burst)
	if q.Rate > rate32 {
		m.Attr(tbfRate64, binary.NativeEndian.AppendUint64(nil, q.Rate))
	}
	if q.Peak == 0 {
		return
	}
	m.Uint32(tbfPeakBy, q.PeakBurst)
	if q.Peak > rate32 {
		m.Attr(tbfPeak64, binary.NativeEndian.AppendUint64(nil, q.Peak))
	}
}

func newIngress(q state.Qdisc, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add", q,
		header(index, ingressHandle, ingressParent, 0))
	m.String(unix.TCA_KIND, string(state.Ingress))
	return m.Forgiving(unix.EEXIST)
}

// Delete requests the deletion of a qdisc of ours. Of an Ingress only the filter is deleted: there may be foreign ones.
func Delete(q state.Qdisc, index int) *rtnl.Message {
	if q.Kind == state.Ingress {
		return deleteFilter(q, index)
	}
	m := rtnl.New(unix.RTM_DELQDISC, 0, "delete", q, header(index, Handle, root, 0))
	return m.Forgiving(unix.ENOENT, unix.EINVAL, unix.ENODEV) // EINVAL: the root qdisc has another handle
}

// DeleteIngress requests the deletion of a link's ingress qdisc.
func DeleteIngress(q state.Qdisc, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_DELQDISC, 0, "delete", q, header(index, ingressHandle, ingressParent, 0))
	return m.Forgiving(unix.ENOENT, unix.EINVAL, unix.ENODEV)
}

// Get requests a link's root qdisc. The kernel does not answer for a link without a queue, so the request must not be
// the last one of its batch.
func Get(index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_GETQDISC, unix.NLM_F_ECHO, "read", rtnl.Name("root qdisc"), header(index, 0, root, 0))
	return m.Forgiving(unix.ENOENT, unix.ENODEV, unix.EINVAL)
}

// Found is a qdisc as the kernel has it.
type Found struct {
	state.Qdisc
	Handle uint32
	// Ticks of 64 ns is how the kernel reports the burst: its duration at the rate.
	Ticks uint32
	// PeakTicks is the same for the peak rate.
	PeakTicks uint32
}

// Decode decodes RTM_NEWQDISC; the caller sets the link's name.
func Decode(body []byte) (Found, bool) {
	if len(body) < headerLen {
		return Found{}, false
	}
	f := Found{Handle: binary.NativeEndian.Uint32(body[8:])}
	var options []byte
	for kind, data := range netlink.Attrs(body[headerLen:]) {
		switch kind {
		case unix.TCA_KIND:
			f.Kind = state.QdiscKind(text(data))
		case unix.TCA_OPTIONS:
			options = data
		}
	}
	if f.Kind == state.TBF {
		for kind, data := range netlink.Attrs(options) {
			f.tbf(kind, data)
		}
	}
	return f, f.Kind != ""
}

func (f *Found) tbf(kind uint16, data []byte) {
	switch {
	case kind == tbfParms && len(data) >= tbfLen:
		if f.Rate == 0 {
			f.Rate = uint64(binary.NativeEndian.Uint32(data[8:]))
		}
		f.Limit, f.Ticks = binary.NativeEndian.Uint32(data[24:]), binary.NativeEndian.Uint32(data[28:])
		f.Burst = bytesIn(f.Rate, f.Ticks)
		if f.Peak == 0 {
			f.Peak = uint64(binary.NativeEndian.Uint32(data[20:]))
		}
		f.PeakTicks = binary.NativeEndian.Uint32(data[32:])
		f.PeakBurst = bytesIn(f.Peak, f.PeakTicks)
	case kind == tbfPeak64 && len(data) >= 8:
		f.Peak = binary.NativeEndian.Uint64(data)
		f.PeakBurst = bytesIn(f.Peak, f.PeakTicks)
	case kind == tbfRate64 && len(data) >= 8:
		f.Rate = binary.NativeEndian.Uint64(data)
		f.Burst = bytesIn(f.Rate, f.Ticks)
	}
}

// Foreign reports whether a root qdisc is neither ours nor the kernel's default.
func (f Found) Foreign() bool { return f.Handle != 0 && f.Handle != Handle }

// Is reports whether a root qdisc is as wanted.
func (f Found) Is(want state.Qdisc) bool {
	if f.Handle != Handle || f.Kind != want.Kind || f.Rate != want.Rate || f.Limit != want.Limit || f.Peak != want.Peak {
		return false
	}
	near := func(have, want uint32) bool {
		d := int32(have - want) // the kernel reports 32 bits of it
		return d >= -1 && d <= 1
	}
	return near(f.Ticks, ticks(want.Rate, want.Burst)) &&
		(want.Peak == 0 || near(f.PeakTicks, ticks(want.Peak, want.PeakBurst)))
}

// The kernel stores the duration of a burst in ns and reports it in units of 64 ns.
const tick = 6

// ticks returns the duration of a burst as the kernel computes it: with a reciprocal of the rate that has 31 or 32
// bits.
func ticks(rate uint64, burst uint32) uint32 {
	if rate == 0 {
		return 0
	}
	factor, shift := uint64(1e9), 0
	mult := factor / rate
	for mult&(1<<31) == 0 && factor&(1<<63) == 0 {
		factor <<= 1
		shift++
		mult = factor / rate
	}
	return uint32(uint64(burst) * uint64(uint32(mult)) >> shift >> tick)
}

// bytesIn returns how many bytes pass at a rate in so many ticks, for output.
func bytesIn(rate uint64, t uint32) uint32 {
	const most = 1<<32 - 1
	return uint32(min(float64(rate)*float64(uint64(t)<<tick)/1e9+0.5, most))
}

func text(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }
