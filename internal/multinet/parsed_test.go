// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// TestParsedNetworks: a network that was parsed for an earlier call is what parsing it again yields, whatever a call
// adds to it, and a call's changes do not reach the next one.
func TestParsedNetworks(t *testing.T) {
	texts := []string{
		`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","isDefaultGateway":true,"ipam":{"type":"host-local"}},
			{"type":"portmap","capabilities":{"portMappings":true}},{"type":"tuning","args":{"cni":{"a":1}}}]}`,
		`{"cniVersion":"1.0.0","name":"wire","type":"macvlan","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
		`{"cniVersion":"1.0.0","name":"other","type":"foreign","capabilities":{"mac":true,"ips":false}}`,
		`{"cniVersion":"1.0.0","name":"bad","type":"portmap","capabilities":{"portMappings":true},"runtimeConfig":1}`,
		`{"cniVersion":"1.0.0","name":"worse","plugins":[]}`,
	}
	ports := map[string]any{"portMappings": []any{map[string]any{"hostPort": 80}}}
	routes := []*plugin.DefaultRouteConf{
		nil, {Yield: true}, {Drop: []string{"4"}, Yield: true}, {Via: []netip.Addr{netip.MustParseAddr("10.1.0.1")}},
	}
	var cache parsedNetworks
	for range 2 {
		for _, text := range texts {
			for _, caps := range []map[string]any{nil, ports, {"mac": "02:00:00:00:00:01", "ips": "10.1.0.5"}} {
				for _, args := range []map[string]any{nil, {"b": 2}} {
					for _, decided := range routes {
						want, wantErr := cni.ParseNetwork([]byte(text))
						if wantErr == nil {
							want, wantErr = cni.Derive(want, caps, args)
						}
						if wantErr == nil {
							wantErr = withRoutes(&want, decided)
						}
						var have model.Network
						p, err := cache.get([]byte(text))
						if err == nil {
							have, err = p.derive(caps, args, decided)
						}
						if fmt.Sprint(err) != fmt.Sprint(wantErr) {
							t.Fatalf("%s: %v, want %v", text, err, wantErr)
						}
						if err != nil {
							continue
						}
						if diff := cmp.Diff(want, have); diff != "" {
							t.Fatalf("caps %v, args %v, routes %v (-want +got):\n%s", caps, args, decided, diff)
						}
						have.Plugins[0] = model.PluginConf{Type: "changed"}
						_ = append(have.Plugins[:1], model.PluginConf{Type: "changed"})
					}
				}
			}
		}
	}
}
