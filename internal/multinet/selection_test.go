// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSelections(t *testing.T) {
	addr := netip.MustParseAddr
	for _, tc := range []struct {
		text string
		want []Selection
	}{
		{"", nil},
		{"  ", nil},
		{"[]", []Selection{}},
		{"a", []Selection{{Name: "a", Namespace: "pods"}}},
		{" other/a@lan , b", []Selection{{Name: "a", Namespace: "other", Interface: "lan"}, {Name: "b", Namespace: "pods"}}},
		{
			`[{"name":"a"},{"name":"a","namespace":"n","interface":"lan0"}]`,
			[]Selection{{Name: "a", Namespace: "pods"}, {Name: "a", Namespace: "n", Interface: "lan0"}},
		},
		{`[{"name":"a","interfaceRequest":"old"}]`, []Selection{{Name: "a", Namespace: "pods", Interface: "old"}}},
		{
			`[{"name":"a","ips":["10.1.2.3/24","fd00::5"],"mac":"02:00:00:00:00:01","infiniband-guid":"c2:11:22:33:44:55:66:77",
		   "portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}],"bandwidth":{"ingressRate":1000,"ingressBurst":8},
		   "deviceID":"0000:03:02.3","cni-args":{"k":{"l":1}},"default-route":["10.1.2.1","fd00::1"]}]`,
			[]Selection{{
				Name: "a", Namespace: "pods", IPs: []string{"10.1.2.3/24", "fd00::5"}, MAC: "02:00:00:00:00:01",
				InfinibandGUID: "c2:11:22:33:44:55:66:77",
				PortMappings:   json.RawMessage(`[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`),
				Bandwidth:      json.RawMessage(`{"ingressRate":1000,"ingressBurst":8}`), DeviceID: "0000:03:02.3",
				CNIArgs:      map[string]any{"k": map[string]any{"l": 1.0}},
				DefaultRoute: []netip.Addr{addr("10.1.2.1"), addr("fd00::1")},
			}},
		},
		{`[{"name":"a","ipam-claim-reference":"claim"}]`, []Selection{{Name: "a", Namespace: "pods", Claim: "claim"}}},
	} {
		got, warnings, err := ParseSelections(NetworksKey, tc.text, "pods")
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", tc.text, warnings, err)
			continue
		}
		if d := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: %s", tc.text, d)
		}
	}
}

func TestWarnings(t *testing.T) {
	_, warnings, err := ParseSelections(NetworksKey, `[{"name":"a","interfaces":"b","example.com/x":1,"zzzzzzzzz":2}]`,
		"pods")
	want := []string{
		`annotation k8s.v1.cni.cncf.io/networks: element 1: key "interfaces" is unknown, is "interface" meant?`,
		`annotation k8s.v1.cni.cncf.io/networks: element 1: key "zzzzzzzzz" is unknown`,
	}
	if d := cmp.Diff(want, warnings); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

func TestBadSelections(t *testing.T) {
	const noun = "annotation k8s.v1.cni.cncf.io/networks: "
	const form = " (write [namespace/]name[@interface], with commas between them, or a JSON list)"
	for text, want := range map[string]string{
		"a,,b":                                  `"" cannot be read` + form,
		"a@":                                    `"a@" cannot be read` + form,
		"/a":                                    `"/a" cannot be read` + form,
		"a/b/c":                                 `"a/b/c" cannot be read` + form,
		"a@b@c":                                 `"a@b@c" cannot be read` + form,
		"A":                                     `element 1: name "A" cannot be used (lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them)`,
		"a@b c":                                 `element 1: interface "b c" contains ' '; no '/', ':' or white space`,
		"a@n,b@n":                               `elements 1 and 2 request one interface, "n" (set a different one in each)`,
		`[{"name":"a"`:                          `line 1 column 12: unexpected end of JSON input`,
		"[\n{\"name\":\"a\"},\n{oops}]":         `line 3 column 2: invalid character 'o' looking for beginning of object key string`,
		`{"name":"a"}`:                          `it is object, want list`,
		`[null]`:                                `element 1 is null, want object`,
		`["a"]`:                                 `element 1: it is string, want object`,
		`[{}]`:                                  `element 1: name is missing (name a NetworkAttachmentDefinition)`,
		`[{"name":5}]`:                          `element 1: name is number, want string`,
		`[{"name":"a","ips":"10.0.0.1"}]`:       `element 1: ips is string, want list`,
		`[{"name":"a","ips":["10.0.0.300"]}]`:   `element 1: ips: "10.0.0.300" is no address (write for example "10.1.2.3/24" or "10.1.2.3")`,
		`[{"name":"a","mac":"02:00"}]`:          `element 1: mac "02:00" is no MAC address (write for example "02:00:00:00:00:01")`,
		`[{"name":"a","infiniband-guid":"x"}]`:  `element 1: infiniband-guid "x" is no GUID (eight bytes with colons between them)`,
		`[{"name":"a","default-route":["x"]}]`:  `element 1: default-route: "x" is no address (gateways are addresses, as ["10.1.0.1"])`,
		`[{"name":"a","default-route":["::"]}]`: `element 1: default-route: "::" cannot be a gateway`,
		`[{"name":"a","portMappings":[{"hostPort":"x"}]}]`:                                      `element 1: portMappings: hostPort is string, want int`,
		`[{"name":"a","bandwidth":[]}]`:                                                         `element 1: bandwidth: it is array, want object`,
		`[{"name":"a","ips":["10.0.0.1"],"ipam-claim-reference":"c"}]`:                          `element 1: ips and ipam-claim-reference exclude each other (leave one of them out)`,
		`[{"name":"a","mac":"02:00:00:00:00:0A"},{"name":"b","mac":"0200.0000.000a"}]`:          `elements 1 and 2 request one mac, "02:00:00:00:00:0a" (set a different one in each)`,
		`[{"name":"a","mac":"02:00:00:00:00:01"},{"name":"b","mac":"02:00:00:00:00:01"}]`:       `elements 1 and 2 request one mac, "02:00:00:00:00:01" (set a different one in each)`,
		`[{"name":"a","ips":["10.0.0.1"]},{"name":"a","ips":["10.0.0.1/24"]}]`:                  `elements 1 and 2 request one address, 10.0.0.1 of network pods/a (set a different one in each)`,
		`[{"name":"a","default-route":["10.0.0.1"]},{"name":"b","default-route":["10.0.1.1"]}]`: `elements 1 and 2 both have a default-route of one family (keep one of them; several gateways of one network share the load)`,
		strings.Repeat("a,", 70) + "a":                                                          `71 networks, at most 63`,
	} {
		_, _, err := ParseSelections(NetworksKey, text, "pods")
		if err == nil {
			t.Errorf("%s: no error", text)
			continue
		}
		got := strings.TrimPrefix(strings.TrimPrefix(err.Error(), strings.TrimSuffix(noun, ": ")), ": ")
		got = strings.TrimPrefix(got, " ")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s:\n%s", text, d)
		}
	}
}

func FuzzSelections(f *testing.F) {
	f.Add("a,b/c@d")
	f.Add(`[{"name":"a","ips":["10.1.2.3/24"],"default-route":["10.1.2.1"],"cni-args":{"a":1}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		list, _, err := ParseSelections(NetworksKey, text, "pods")
		if err != nil {
			return
		}
		for i := range list { // what was read can be written and read again
			b, err := json.Marshal([]Selection{list[i]})
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := ParseSelections(NetworksKey, string(b), "other")
			if err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			c, err := json.Marshal(again)
			if err != nil || string(b) != string(c) {
				t.Fatalf("%s became %s (%v)", b, c, err)
			}
		}
	})
}
