// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"errors"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// pendingReservation has the addresses chosen for one attachment, in a locked directory.
type pendingReservation struct {
	d      *directory // nil when the reservation has ended
	owner  string
	routes ipam.Routes
	dns    model.DNS
	ips    []model.IP
	kept   []netip.Addr // those kept for a VM
	lasts  []*lastFile  // of each address's set
}

// choose chooses one address of every set.
func (h *pendingReservation) choose(s settings, keptAddrs []netip.Addr) error {
	requested := slices.Clone(s.requested)
	for i, set := range s.sets {
		want := netip.Addr{}
		if at := slices.IndexFunc(requested, set.contains); at >= 0 {
			want = requested[at]
			requested = slices.Delete(requested, at, at+1)
		}
		last, err := h.d.last(i)
		if err != nil {
			return err
		}
		h.lasts = append(h.lasts, last)
		ip, kept, err := h.pick(set, last.addr, want, keptAddrs)
		if err != nil {
			return err
		}
		h.ips = append(h.ips, ip)
		if kept {
			h.kept = append(h.kept, ip.Address.Addr())
		}
	}
	if len(requested) > 0 {
		return ipam.Invalid("ask for one address of each range set at most",
			"ips: %s: in no range set that is still free for this attachment", join(requested))
	}
	return nil
}

// pick returns an address of a set; kept: it is kept for a VM, the requested one or one that loses it.
func (h *pendingReservation) pick(
	set rangeSet,
	last, want netip.Addr,
	keptAddrs []netip.Addr,
) (ip model.IP, kept bool, err error) {
	usable := func(a netip.Addr) bool { return set.contains(a) && set.spans[set.at(a)].usable(a) }
	if i := slices.IndexFunc(keptAddrs, usable); i >= 0 && (!want.IsValid() || want == keptAddrs[i]) {
		return set.ip(keptAddrs[i]), true, nil
	}
	ip, err = set.choose(h.d, last, want)
	var f *model.Error
	if want.IsValid() || !errors.As(err, &f) || f.Code != model.CodeExhausted {
		return ip, false, err
	}
	old, oldErr := h.d.oldestKept(set)
	if oldErr != nil || !old.IsValid() {
		return ip, false, errors.Join(err, oldErr)
	}
	return set.ip(old), true, nil
}

// Result returns the chosen addresses, with the configuration's routes and the resolver's settings.
func (h *pendingReservation) Result() model.Result {
	return model.Result{IPs: slices.Clone(h.ips), Routes: h.routes, DNS: h.dns}
}

// Standby returns false: the addresses are one node's.
func (h *pendingReservation) Standby() bool { return false }

// Commit writes the files of the addresses and moves the round robin; when one fails, those before it are removed.
func (h *pendingReservation) Commit() error {
	defer h.Cancel()
	for i, ip := range h.ips {
		var err error
		if slices.Contains(h.kept, ip.Address.Addr()) {
			err = h.d.remove(ip.Address.Addr())
		}
		if err == nil {
			err = h.d.reserve(ip.Address.Addr(), h.owner)
		}
		if err == nil {
			if err = h.lasts[i].set(ip.Address.Addr()); err != nil {
				err = errors.Join(err, h.d.remove(ip.Address.Addr()))
			}
		}
		if err != nil {
			for _, before := range h.ips[:i] {
				_ = h.d.remove(before.Address.Addr()) // the first error is returned
			}
			return err
		}
	}
	return nil
}

// Cancel unlocks the directory.
func (h *pendingReservation) Cancel() {
	if h.d == nil {
		return
	}
	for _, l := range h.lasts {
		l.close()
	}
	h.d.close()
	h.d = nil
}

// reserve writes the file of a free address. A file that exists now was created by a program that does not hold the
// directory's lock.
func (d *directory) reserve(a netip.Addr, owner string) error {
	r, err := d.newOwnerFile(owner)
	if err != nil {
		return err
	}
	defer r.close()
	err = r.claim(a)
	if errors.Is(err, fs.ErrExist) {
		return model.Errorf(model.CodeTryAgain, "find the program that writes there without its lock",
			"host-local: %s was created by another program at the same time", d.file(a))
	}
	return err
}
