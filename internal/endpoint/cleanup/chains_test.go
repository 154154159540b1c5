// SPDX-License-Identifier: Apache-2.0

package cleanup

import "testing"

func TestOwnerOf(t *testing.T) {
	for comment, want := range map[string][2]string{
		`name: "net" id: "c1"`:                {"net", "c1"},
		`dnat name: "my-net" id: "abc.d_e"`:   {"my-net", "abc.d_e"},
		`name: "" id: ""`:                     {"", ""},
		`name: "a" id: "b" name: "n" id: "c"`: {"n", "c"},
	} {
		network, container, ok := ownerOf(comment)
		if !ok || network != want[0] || container != want[1] {
			t.Errorf("%s: %q %q %v", comment, network, container, ok)
		}
	}
	for _, comment := range []string{
		``, `name: "n"`, `name: "n" id: "c`, `name: "n" id: "c" x`, `id: "c"`, `name: "n id: c"`,
	} {
		if network, container, ok := ownerOf(comment); ok {
			t.Errorf("%s: %q %q", comment, network, container)
		}
	}
}

func TestChainNames(t *testing.T) {
	const hash = "0123456789abcdef01234567"
	for name, want := range map[string][2]bool{
		"CNI-" + hash: {true, false}, "CNI-DN-" + hash[:21]: {false, true}, "CNI-SN-" + hash[:21]: {false, true},
		"CNI-" + hash[1:]: {}, "CNI-" + hash + "0": {}, "CNI-0123456789ABCDEF01234567": {}, "CNI-HOSTPORT-DNAT": {},
		"X" + hash: {}, "": {},
	} {
		if containerChain(name) != want[0] || portChain(name) != want[1] {
			t.Errorf("%q: %v %v", name, containerChain(name), portChain(name))
		}
	}
}
