// SPDX-License-Identifier: Apache-2.0

package udp

import "runtime"

// Go's scheduler has a monitor (sysmon) that looks for goroutines which keep a P while they block in the kernel. It is
// woken for that and checks every 20 µs, which costs as much as a single packet. It has nothing to do if there are idle
// Ps, and if goroutines yield theirs now and then.

// places is the minimum number of Ps: two for each direction of a path, in two families, and some for the rest.
const places = 6

func ensurePlaces() {
	if runtime.GOMAXPROCS(0) < places {
		runtime.GOMAXPROCS(places)
	}
}

// turns counts the rounds of a loop.
type turns uint32

const often = 32

func (t *turns) next() {
	if *t++; *t%often == 0 {
		runtime.Gosched()
	}
}
