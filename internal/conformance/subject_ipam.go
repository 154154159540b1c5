// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const hostLocal = "host-local"

var errNothingToExhaust = errors.New("the kit's own IPAM plugin has no end")

// hostLocalConf is one range in the world's own directory.
func hostLocalConf(w *world) map[string]any {
	return map[string]any{
		"type": hostLocal, "subnet": "10.23.0.0/24", "gateway": "10.23.0.1", "dataDir": w.data(),
		"routes": []any{
			map[string]any{
				"dst": "0.0.0.0/0",
			}, map[string]any{"dst": "192.0.2.0/24", "gw": "10.23.0.1", "mtu": 1300, "priority": 77},
		},
	}
}

// dualConf gives an address of each family.
func dualConf(w *world) map[string]any {
	span := func(subnet string) []any { return []any{map[string]any{"subnet": subnet}} }
	return map[string]any{
		"type": hostLocal, "dataDir": w.data(), "ranges": []any{span("10.23.0.0/24"), span("fd00:23::/64")},
		"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
	}
}

// recordedConf makes the recording plugin give addresses, each call another one; the first is 10.25.0.9.
func recordedConf(w *world) (map[string]any, error) {
	answer := map[string]any{
		"cniVersion": w.version,
		"ips":        []any{ipEntry(w.version, "10.25.0.@N@/24", "10.25.0.1")},
		"routes":     []any{map[string]any{"dst": "0.0.0.0/0", "gw": "10.25.0.1"}},
		"dns":        map[string]any{"nameservers": []any{"10.25.0.53"}},
	}
	return map[string]any{"type": recording, "unknownKey": "kept"}, w.rec.answer(recording, add, answer)
}

// ipEntry is an entry of ips in the form of a version.
func ipEntry(version, address, gateway string) map[string]any {
	m := map[string]any{"address": address, "gateway": gateway}
	if version < "1" {
		m["version"] = "4"
	}
	return m
}

// givers are the IPAM plugins, called as a delegating plugin calls them.
func givers() []*subject {
	direct := func(w *world, _ *pod) map[string]any {
		return map[string]any{"type": "kit", "ipam": w.ipam}
	}
	return []*subject{
		{
			typ: hostLocal, role: giver, conf: direct, exhaust: exhaustRange,
			harm: []harm{{"the reservation's file", unreserve}},
		},
		{typ: "static", role: giver, conf: func(_ *world, p *pod) map[string]any {
			return map[string]any{"type": "kit", "ipam": map[string]any{
				"type":      "static",
				"addresses": []any{map[string]any{"address": fmt.Sprintf("10.24.0.%d/24", 10+p.n), "gateway": "10.24.0.1"}},
				"routes":    []any{map[string]any{"dst": "0.0.0.0/0"}},
			}}
		}},
		dhcpSubject(),
	}
}

// unreserve removes the pod's reservations from host-local's directory.
func unreserve(w *world, p *pod) error {
	files, err := filepath.Glob(filepath.Join(w.data(), w.network, "10.23.*"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no reservation in %s: %w", w.data(), err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}
