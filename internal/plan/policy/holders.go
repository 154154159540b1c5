// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// holders maps addresses to pods. Nearly always it is one pod, with an IPv4 address of the cluster's network.
type holders struct {
	usual map[[4]byte]*pod
	six   map[[16]byte]*pod
	other map[networkAddr]*pod
	more  map[networkAddr][]*pod // all of them, where there are several
}

func newHolders() holders {
	return holders{
		usual: map[[4]byte]*pod{},
		six:   map[[16]byte]*pod{},
		other: map[networkAddr]*pod{},
		more:  map[networkAddr][]*pod{},
	}
}

func (hs *holders) one(h networkAddr) *pod {
	switch {
	case h.network != "":
		return hs.other[h]
	case h.addr.Is4():
		return hs.usual[h.addr.As4()]
	}
	return hs.six[h.addr.As16()]
}

func (hs *holders) set(h networkAddr, p *pod) {
	switch {
	case h.network != "":
		put(hs.other, h, p)
	case h.addr.Is4():
		put(hs.usual, h.addr.As4(), p)
	default:
		put(hs.six, h.addr.As16(), p)
	}
}

func put[K comparable](in map[K]*pod, k K, p *pod) {
	if in[k] = p; p == nil {
		delete(in, k)
	}
}

// of iterates over the pods that have the address.
func (hs *holders) of(h networkAddr) func(yield func(*pod) bool) {
	return func(yield func(*pod) bool) {
		if many := hs.more[h]; many != nil {
			for _, p := range many {
				if !yield(p) {
					return
				}
			}
			return
		}
		if p := hs.one(h); p != nil {
			yield(p)
		}
	}
}

func (hs *holders) add(h networkAddr, p *pod) {
	many := hs.more[h]
	switch one := hs.one(h); {
	case one == nil:
		hs.set(h, p)
	case one == p || slices.Contains(many, p):
	case many == nil:
		hs.more[h] = []*pod{one, p}
	default:
		hs.more[h] = append(many, p)
	}
}

func (hs *holders) remove(h networkAddr, p *pod) {
	many := hs.more[h]
	if many == nil {
		if hs.one(h) == p {
			hs.set(h, nil)
		}
		return
	}
	many = slices.DeleteFunc(many, func(o *pod) bool { return o == p })
	hs.set(h, many[0])
	if len(many) == 1 {
		delete(hs.more, h)
		return
	}
	hs.more[h] = many
}
