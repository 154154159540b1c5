// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
	"path/filepath"
	"testing"
)

// A configuration that was parsed before serves other networks and requests, and what a caller does to its answer does
// not reach the next one.
func TestParsedConfigurationIsShared(t *testing.T) {
	a := New(Config{DataDir: t.TempDir()})
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.9.0.0/16"}]}`)
	for i, network := range []string{"one", "two"} {
		q := req(conf, "c1")
		q.Network = network
		if i == 1 {
			q.Args = [][2]string{{"IP", "10.1.0.77"}}
		}
		result, err := a.Add(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Routes) != 1 || result.Routes[0].Dst.String() != "10.9.0.0/16" {
			t.Errorf("%s: routes %v", network, result.Routes)
		}
		result.Routes[0].Dst = result.IPs[0].Address
		want := map[string]string{"one": "10.1.0.2/24", "two": "10.1.0.77/24"}[network]
		if have := result.IPs[0].Address.String(); have != want {
			t.Errorf("%s: address %s, want %s", network, have, want)
		}
		if dir, err := a.directoryOf(q); err != nil || dir != filepath.Join(a.cfg.DataDir, network) {
			t.Errorf("directory %s, %v", dir, err)
		}
	}
}
