// SPDX-License-Identifier: Apache-2.0

package network

import "testing"

// TestWithoutReserved: a plugin gets neither capabilities nor reserved keys; GC gets its list of attachments.
func TestWithoutReserved(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		gc       bool
		want     string
	}{
		{"nothing to do", `{"type":"a", "x": [1]}`, false, `{"type":"a", "x": [1]}`},
		{
			"capabilities", `{"type":"a","capabilities":{"dns":true},"runtimeConfig":{"dns":{}}}`, false,
			`{"runtimeConfig":{"dns":{}},"type":"a"}`,
		},
		{"protocol", `{"type":"a","cni.dev/valid-attachments":[],"cni.dev/x":1}`, false, `{"type":"a"}`},
		{
			"gc", `{"cni.dev/attachments":[1],"cni.dev/valid-attachments":[1],"cni.dev/x":1,"type":"a"}`, true,
			`{"cni.dev/attachments":[1],"cni.dev/valid-attachments":[1],"type":"a"}`,
		},
		{"no object", `nonsense`, false, `nonsense`},
	} {
		got, err := withoutReserved([]byte(tt.in), tt.gc)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}
