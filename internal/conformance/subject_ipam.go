// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const hostLocal = "host-local"

var errInexhaustible = errors.New("the kit's IPAM plugin has no limit")

// hostLocalIPAM returns a configuration with one range, with the world's data directory.
func hostLocalIPAM(w *world) map[string]any {
	return map[string]any{
		"type": hostLocal, "subnet": "10.23.0.0/24", "gateway": "10.23.0.1", "dataDir": w.data(),
		"routes": []any{
			map[string]any{
				"dst": "0.0.0.0/0",
			}, map[string]any{"dst": "192.0.2.0/24", "gw": "10.23.0.1", "mtu": 1300, "priority": 77},
		},
	}
}

// dualStackIPAM returns a configuration with a range of each family.
func dualStackIPAM(w *world) map[string]any {
	span := func(subnet string) []any { return []any{map[string]any{"subnet": subnet}} }
	return map[string]any{
		"type": hostLocal, "dataDir": w.data(), "ranges": []any{span("10.23.0.0/24"), span("fd00:23::/64")},
		"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
	}
}

// recorderIPAM makes the recording plugin return a different address for each call; the first one is 10.25.0.9.
func recorderIPAM(w *world) (map[string]any, error) {
	answer := map[string]any{
		"cniVersion": w.version,
		"ips":        []any{ipEntry(w.version, "10.25.0.@N@/24", "10.25.0.1")},
		"routes":     []any{map[string]any{"dst": "0.0.0.0/0", "gw": "10.25.0.1"}},
		"dns":        map[string]any{"nameservers": []any{"10.25.0.53"}},
	}
	return map[string]any{"type": recorderType, "unknownKey": "kept"}, w.rec.setResult(recorderType, add, answer)
}

// ipEntry returns an entry of ips in the format of a version.
func ipEntry(version, address, gateway string) map[string]any {
	m := map[string]any{"address": address, "gateway": gateway}
	if version < "1" {
		m["version"] = "4"
	}
	return m
}

// ipamSubjects returns the IPAM plugins, called as a delegating plugin calls them.
func ipamSubjects() []*subject {
	direct := func(w *world, _ *pod) map[string]any {
		return map[string]any{"type": "kit", "ipam": w.ipam}
	}
	return []*subject{
		{
			typ: hostLocal, role: ipamPlugin, conf: direct, exhaust: exhaustRange,
			damages: []damage{{"the reservation's file", removeReservation}},
		},
		{typ: "static", role: ipamPlugin, conf: func(_ *world, p *pod) map[string]any {
			return map[string]any{"type": "kit", "ipam": map[string]any{
				"type":      "static",
				"addresses": []any{map[string]any{"address": fmt.Sprintf("10.24.0.%d/24", 10+p.n), "gateway": "10.24.0.1"}},
				"routes":    []any{map[string]any{"dst": "0.0.0.0/0"}},
			}}
		}},
		dhcpSubject(),
	}
}

// removeReservation deletes the pod's reservations from host-local's directory.
func removeReservation(w *world, p *pod) error {
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
