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

// hold is what was chosen for one attachment, in a locked directory.
type hold struct {
	d      *directory // nil when the hold has ended
	owner  string
	routes ipam.Routes
	dns    model.DNS
	ips    []model.IP
	kept   []netip.Addr // those whose files say a machine
	lasts  []*lastFile  // of each address's set
}

// choose finds one address of every set.
func (h *hold) choose(s settings, promised []netip.Addr) error {
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
		ip, kept, err := h.pick(set, last.addr, want, promised)
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

// pick is an address of a set; kept: its file says a machine, whose it is, or that has to do without.
func (h *hold) pick(set rangeSet, last, want netip.Addr, promised []netip.Addr) (ip model.IP, kept bool, err error) {
	usable := func(a netip.Addr) bool { return set.contains(a) && set.spans[set.at(a)].usable(a) }
	if i := slices.IndexFunc(promised, usable); i >= 0 && (!want.IsValid() || want == promised[i]) {
		return set.ip(promised[i]), true, nil
	}
	ip, err = set.choose(h.d, last, want)
	var f *model.Fault
	if want.IsValid() || !errors.As(err, &f) || f.Code != model.CodeExhausted {
		return ip, false, err
	}
	old, oldErr := h.d.oldest(set)
	if oldErr != nil || !old.IsValid() {
		return ip, false, errors.Join(err, oldErr)
	}
	return set.ip(old), true, nil
}

// Result is the chosen addresses, with the configuration's routes and the resolver's settings.
func (h *hold) Result() model.Result {
	return model.Result{IPs: slices.Clone(h.ips), Routes: h.routes, DNS: h.dns}
}

// Standby is never so: its addresses are one node's.
func (h *hold) Standby() bool { return false }

// Keep writes the files of the addresses and moves the round robin; when one fails, those before it are removed.
func (h *hold) Keep() error {
	defer h.Drop()
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
				_ = h.d.remove(before.Address.Addr()) // the first error is the one to tell
			}
			return err
		}
	}
	return nil
}

// Drop unlocks the directory.
func (h *hold) Drop() {
	if h.d == nil {
		return
	}
	for _, l := range h.lasts {
		l.close()
	}
	h.d.close()
	h.d = nil
}

// reserve writes the file of an address that was seen to be free. All that change the directory hold its lock, so a
// file that is there now was put there by somebody who does not.
func (d *directory) reserve(a netip.Addr, owner string) error {
	r, err := d.reservation(owner)
	if err != nil {
		return err
	}
	defer r.close()
	err = r.claim(a)
	if errors.Is(err, fs.ErrExist) {
		return model.Faultf(model.CodeTryAgain, "find who writes there without holding its lock",
			"host-local: %s was taken by somebody else in this moment", d.file(a))
	}
	return err
}
