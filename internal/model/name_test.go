// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"node1": true, "a": true, "a-b.c.9": true, strings.Repeat("a", 253): true,
		"": false, "Node": false, "a b": false, "a_b": false, "-a": false, "a-": false, "a..b": false, ".": false,
		"a/b": false,
		"é":   false, strings.Repeat("a", 254): false,
	} {
		err := CheckName("--node", name)
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "--node \""+name+"\"") {
			t.Errorf("%q: the error does not name field and value: %v", name, err)
		}
	}
}
