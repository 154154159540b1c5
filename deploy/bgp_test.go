// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"strings"
	"testing"
)

// With bgp.enabled the chart has the speaker, its kinds and the agents' rights to them; without, nothing of it.
func TestBGP(t *testing.T) {
	text := func(values map[string]any) string {
		var all []string
		for _, m := range manifests(t, values) {
			all = append(all, m.Text)
		}
		return strings.Join(all, "---\n")
	}
	for _, want := range []string{
		"name: weft-bgp", "command: [/usr/bin/weft-bgp]", "name: bgppeers.weft.dev", "socket: /run/weft/bgp.sock",
		"resources: [bgpconfigurations, bgppeers, bgpfilters]", "resources: [secrets]",
	} {
		if !strings.Contains(text(map[string]any{"bgp": map[string]any{"enabled": true}}), want) {
			t.Errorf("with bgp.enabled there is no %q", want)
		}
		if strings.Contains(text(nil), want) {
			t.Errorf("without bgp.enabled there is %q", want)
		}
	}
}
