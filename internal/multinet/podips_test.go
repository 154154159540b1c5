// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestPodIPs: the annotations have the addresses of the first network, without the length of its prefix.
func TestPodIPs(t *testing.T) {
	ips := func(all ...string) (r model.Result) {
		for _, text := range all {
			r.IPs = append(r.IPs, model.IP{Address: netip.MustParsePrefix(text)})
		}
		return r
	}
	got := PodIPs([]Got{
		{Label: "ns/further", Result: ips("10.9.0.1/24")}, {Primary: true, Result: ips("10.0.0.7/24", "fd00::7/64")},
	})
	want := map[string]string{
		"cni.projectcalico.org/podIP": "10.0.0.7/32", "cni.projectcalico.org/podIPs": "10.0.0.7/32,fd00::7/128",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := PodIPs([]Got{{Primary: true}}); len(got) != 0 {
		t.Errorf("without addresses: %v", got)
	}
}
