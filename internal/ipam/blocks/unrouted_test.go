// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestUnrouted: a list with calico-ipam works where no node has routes to the pools' addresses; one warning is logged.
func TestUnrouted(t *testing.T) {
	for _, unrouted := range []bool{false, true} {
		_, path := cluster(t, map[string]string{"a.yaml": poolYAML("a", "10.1.0.0/24", 28)})
		var log bytes.Buffer
		n := join(t, path, "n1", func(c *Config) {
			c.Unrouted, c.Log = unrouted, slog.New(slog.NewTextHandler(&log, nil))
		})
		for i := range 3 {
			if _, err := n.addCluster(calicoConf(), fmt.Sprint("c", i), model.AddressRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		want := 0
		if unrouted {
			want = 1
		}
		if got := strings.Count(log.String(), "set network.addresses: pools"); got != want {
			t.Errorf("unrouted %t: told %d times:\n%s", unrouted, got, log.String())
		}
	}
}
