// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/tc"
)

// programs returns what decides about packets of a link besides netfilter, and is not weft's: eBPF programs (XDP, TCX) and
// filters of traffic control, in their own words.
func (n *Namespace) programs(ctx context.Context, index int, xdp bool) (out []string, err error) {
	if xdp {
		out = append(out, "an XDP program")
	}
	for _, d := range []struct {
		name      string
		direction uint32
		attach    ebpf.AttachType
	}{
		{"arriving", tc.Arriving, ebpf.AttachTCXIngress}, {"leaving", tc.Leaving, ebpf.AttachTCXEgress},
	} {
		kind := ""
		err := n.sock.Dump(ctx, tc.ListDirection(index, d.direction), func(body []byte) {
			if k := tc.ForeignKind(body); k != "" {
				kind = k
			}
		})
		if err != nil {
			return nil, err
		}
		if kind != "" {
			out = append(out, fmt.Sprintf("a tc filter of kind %s for %s packets", kind, d.name))
		}
		attached, err := n.attached(index, d.attach)
		if err != nil {
			return nil, err
		}
		if attached {
			out = append(out, fmt.Sprintf("a TCX program for %s packets", d.name))
		}
	}
	return out, nil
}

// attached reports whether TCX programs are attached to a link. A kernel before 6.6 has none, and a process that may not
// ask could not attach one either.
func (n *Namespace) attached(index int, at ebpf.AttachType) (found bool, err error) {
	ask := func() error {
		r, err := bpflink.QueryPrograms(bpflink.QueryOptions{Target: index, Attach: at})
		if err != nil {
			return err
		}
		found = len(r.Programs) > 0
		return nil
	}
	if n.ns == nil {
		err = ask()
	} else {
		err = n.ns.Do(ask)
	}
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) ||
		errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("TCX programs: %w", err)
	}
	return found, nil
}

// hasXDP reports whether an XDP program is attached to the link that an answer's attributes describe.
func hasXDP(attributes []byte) bool {
	mode := netlink.Find(netlink.Find(attributes, unix.IFLA_XDP), unix.IFLA_XDP_ATTACHED)
	return len(mode) > 0 && mode[0] != 0
}
