// SPDX-License-Identifier: Apache-2.0

package udp

import "runtime"

// Go's scheduler has a watchman that looks for goroutines which keep one of its places while they wait in the kernel.
// He is woken for, and looks every 20 µs, which costs as much as a packet that comes alone does. He has nothing to do
// where there are places to spare, and where goroutines give theirs back now and then.

// places is how many the scheduler has at least: the two of a path, in two families, and one to spare for all the rest.
const places = 6

func makeRoom() {
	if runtime.GOMAXPROCS(0) < places {
		runtime.GOMAXPROCS(places)
	}
}

// turns counts a loop's rounds.
type turns uint32

const often = 32

func (t *turns) next() {
	if *t++; *t%often == 0 {
		runtime.Gosched()
	}
}
