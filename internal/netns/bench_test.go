// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// BenchmarkDo measures entering and leaving a namespace: about the cost of its four system calls.
func BenchmarkDo(b *testing.B) {
	ns := nettest.NS(b, "ns")
	for b.Loop() {
		if err := ns.Do(func() error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
