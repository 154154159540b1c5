// SPDX-License-Identifier: Apache-2.0

package plugin

import "testing"

// BenchmarkBridge measures planning one port: validate, query, plan.
func BenchmarkBridge(b *testing.B) {
	in := goldens()["bridge-gateway"]
	in.Request = request()
	b.ReportAllocs()
	for b.Loop() {
		if err := Validate(Bridge{}, in.Conf); err != nil {
			b.Fatal(err)
		}
		if _, err := (Bridge{}).Observe(in); err != nil {
			b.Fatal(err)
		}
		if _, err := (Bridge{}).Plan(in); err != nil {
			b.Fatal(err)
		}
	}
}
