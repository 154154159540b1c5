// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// links are the links that a space names, as they were found and as they are made since. Plans name links, the kernel
// knows their indexes: here one becomes the other.
type links struct {
	found map[string]link.Found
	// made are those that this Apply has created: nothing is on them yet.
	made map[string]bool
}

func newLinks() *links { return &links{found: map[string]link.Found{}, made: map[string]bool{}} }

func (l *links) get(name string) (link.Found, bool) {
	f, ok := l.found[name]
	return f, ok
}

// index is that of a link, 0 where there is none.
func (l *links) index(name string) int { return l.found[name].Index }

// old is a link that existed before this Apply and may therefore hold things.
func (l *links) old(name string) (link.Found, bool) {
	f, ok := l.found[name]
	return f, ok && !l.made[name]
}

// put notes a link that is about to be made with an index.
func (l *links) put(want state.Link, index, master int) {
	f := link.Found{Index: index, MasterIndex: master, AddrGenMode: -1}
	f.Name, f.Kind, f.MAC, f.MTU, f.Up = want.Name, want.Kind, want.MAC, want.MTU, state.Off()
	f.TxQLen = want.TxQLen
	f.Promisc, f.AllMulti, f.Bridge = state.Off(), state.Off(), want.Bridge
	f.Macvlan, f.Ipvlan, f.Vlan, f.VRF, f.Vxlan = want.Macvlan, want.Ipvlan, want.Vlan, want.VRF, want.Vxlan
	f.IPIP = want.IPIP
	if want.Kind == state.Bridge {
		f.MTU = 0 // one that was given when the bridge was made does not keep it from following its ports
	}
	l.found[want.Name], l.made[want.Name] = f, true
}

// allMade tells whether this Apply made every link of the names.
func (l *links) allMade(names []string) bool {
	for _, name := range names {
		if !l.made[name] {
			return false
		}
	}
	return true
}

// named is a link with its master's name, as far as that was looked at.
func (l *links) named(f link.Found) state.Link {
	for name, o := range l.found {
		if f.MasterIndex != 0 && o.Index == f.MasterIndex {
			f.Master = name
		}
	}
	return f.Link
}

// withoutDead leaves out those that wait for the reaper.
func (l *links) withoutDead() {
	for name, have := range l.found {
		if have.Dead() {
			delete(l.found, name)
		}
	}
}
