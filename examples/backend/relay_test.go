// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/pkg/backend"
)

// TestRouters: addresses that are none are refused where the backend is used, not before: the program is weft-agent,
// too.
func TestRouters(t *testing.T) {
	for text, want := range map[string]string{
		"172.18.0.1,fd18::1": "", "172.18.0.1": "", "": "RELAY_ROUTERS", "router": `"router"`,
	} {
		err := Relay(text).Check(backend.Config{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}
