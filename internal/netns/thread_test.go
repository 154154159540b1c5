// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// The process's first thread never ends, so its namespace is what /proc shows as that of the process.
func TestFirstThreadStaysWhereItIs(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		ns, err := netns.Anonymous()
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.Close(); err != nil {
			t.Fatal(err)
		}
		if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before {
			t.Fatalf("after %d namespaces the process seems to be in %s, it was in %s (%v)", i+1, after, before, err)
		}
	}
}
