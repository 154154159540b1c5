// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// smallFS mounts a tmpfs with a size limit at dir.
func smallFS(t testing.TB, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, nil, "mount", "-t", "tmpfs", "-o", "size="+size, "none", dir)
	t.Cleanup(func() { nettest.Run(t, nil, "umount", "-l", dir) })
}

func readOnly(t testing.TB, dir string) {
	t.Helper()
	nettest.Run(t, nil, "mount", "-o", "remount,bind,ro", dir)
}

// expectUniqueAddrs checks that pods have no duplicate addresses.
func expectUniqueAddrs(t testing.TB, pods []*pod) {
	t.Helper()
	seen := map[string]string{}
	for _, p := range pods {
		var links []struct {
			Info []struct {
				Local string `json:"local"`
				Scope string `json:"scope"`
			} `json:"addr_info"`
		}
		if err := json.Unmarshal([]byte(nettest.Run(t, p.ns, "ip", "-j", "addr", "show", "dev", "eth0")),
			&links); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, l := range links {
			for _, info := range l.Info {
				if info.Scope != "global" {
					continue
				}
				n++
				if other := seen[info.Local]; other != "" {
					t.Errorf("%s and %s both have %s", other, p.id, info.Local)
				}
				seen[info.Local] = p.id
			}
		}
		if n != 2 {
			t.Errorf("%s has %d addresses, want 2", p.id, n)
		}
	}
}
