// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"testing"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/multinet"
)

// BenchmarkDelegates measures parsing a call.
func BenchmarkDelegates(b *testing.B) {
	conf := []byte(
		`{"cniVersion":"1.0.0","name":"net","type":"weft-cni","socket":"/run/weft/agent.sock","capabilities":{"portMappings":true},
		"delegates":[{"plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"ipam":{"type":"host-local",
		"ranges":[[{"subnet":"10.99.0.0/16"}],[{"subnet":"fd99::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}]}]}`)
	env := getenv(vars("ADD", "c"))
	networks := &multinet.Resolver{}
	b.ReportAllocs()
	for b.Loop() {
		call, err := cni.ParseCall(env, conf)
		if err == nil {
			_, err = parseDelegates(networks, call)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
