// SPDX-License-Identifier: Apache-2.0

package counters_test

import (
	"os"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/kernel/counters"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// What the kernel of a namespace counts as lost is reported by the counter that rose, and nothing else is.
func TestRisen(t *testing.T) {
	ns := nettest.NS(t, "counters")
	nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
	read := func() counters.Values {
		t.Helper()
		v, err := counters.Read(ns)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := read()
	if risen := read().Risen(before); len(risen) != 0 {
		t.Errorf("nothing was lost: %+v", risen)
	}
	_, err := nettest.Try(ns, "ping", "-c1", "-W1", "192.0.2.1") // no route
	if err == nil {
		t.Fatal("192.0.2.1 answers")
	}
	risen := read().Risen(before)
	if !slices.ContainsFunc(risen, func(c counters.Counter) bool { return c.Name == "IpOutNoRoutes" && c.By > 0 }) {
		t.Errorf("%+v", risen)
	}
}
