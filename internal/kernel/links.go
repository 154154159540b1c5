// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// links are the links that a space names, as found and as created since. Plans name links, the kernel uses indexes:
// this type translates.
type links struct {
	found map[string]link.Found
	// made are the links that this Apply has created: they have no addresses, routes or settings yet.
	made map[string]bool
}

func newLinks() *links { return &links{found: map[string]link.Found{}, made: map[string]bool{}} }

func (l *links) get(name string) (link.Found, bool) {
	f, ok := l.found[name]
	return f, ok
}

// index returns a link's index, 0 when it does not exist.
func (l *links) index(name string) int { return l.found[name].Index }

// old returns a link that existed before this Apply and may therefore have addresses, routes and settings.
func (l *links) old(name string) (link.Found, bool) {
	f, ok := l.found[name]
	return f, ok && !l.made[name]
}

// put records a link that is about to be made with an index.
func (l *links) put(want state.Link, index, master int) {
	f := link.Found{Index: index, MasterIndex: master, AddrGenMode: -1}
	f.Name, f.Kind, f.MAC, f.MTU, f.Up = want.Name, want.Kind, want.MAC, want.MTU, state.Off()
	f.TxQLen = want.TxQLen
	f.Promisc, f.AllMulti, f.Bridge = state.Off(), state.Off(), want.Bridge
	f.Macvlan, f.Ipvlan, f.VLAN, f.VRF, f.VXLAN = want.Macvlan, want.Ipvlan, want.VLAN, want.VRF, want.VXLAN
	f.IPIP = want.IPIP
	if want.Kind == state.Bridge {
		f.MTU = 0 // an MTU that was set at creation does not keep the bridge from following its ports' MTU
	}
	l.found[want.Name], l.made[want.Name] = f, true
}

// allMade reports whether this Apply made every link in names.
func (l *links) allMade(names []string) bool {
	for _, name := range names {
		if !l.made[name] {
			return false
		}
	}
	return true
}

// named returns a link with its master's name, if that was read.
func (l *links) named(f link.Found) state.Link {
	for name, o := range l.found {
		if f.MasterIndex != 0 && o.Index == f.MasterIndex {
			f.Master = name
		}
	}
	return f.Link
}

// withoutDead removes the links that wait for the reaper.
func (l *links) withoutDead() {
	for name, have := range l.found {
		if have.Dead() {
			delete(l.found, name)
		}
	}
}
