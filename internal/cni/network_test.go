// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

func TestParseNetwork(t *testing.T) {
	list := `{"cniVersion":"0.4.0","cniVersions":["1.1.0","1.0.0","9.9.9"],"name":"n","disableCheck":"true","disableGC":true,
		"plugins":[{"type":"bridge","x":{"y":1}},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	n, err := ParseNetwork([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	want := model.Network{
		Name: "n", CNIVersion: "1.1.0", DisableCheck: true, DisableGC: true, Raw: json.RawMessage(list),
		Plugins: []model.PluginConf{
			{Type: "bridge", Raw: json.RawMessage(`{"type":"bridge","x":{"y":1}}`)},
			{
				Type: "portmap", Capabilities: map[string]bool{"portMappings": true},
				Raw: json.RawMessage(`{"type":"portmap","capabilities":{"portMappings":true}}`),
			},
		},
	}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	single, err := ParseNetwork([]byte(`{"cniVersion":"0.2.0","name":"lo","type":"loopback"}`))
	if err != nil || single.CNIVersion != "0.2.0" || len(single.Plugins) != 1 || single.Plugins[0].Type != "loopback" {
		t.Errorf("single: %+v %v", single, err)
	}
	if old, err := ParseNetwork([]byte(`{"name":"lo","type":"loopback"}`)); err != nil || old.CNIVersion != "0.1.0" {
		t.Errorf("no version: %+v %v", old, err)
	}
}

func TestBadNetworks(t *testing.T) {
	for _, tc := range []struct {
		conf, want string
		code       model.Code
	}{
		{`{"name":"n","cniVersion":"1.0.0","plugins":[]}`, "no plugins", 7},
		{`{"name":"n","cniVersion":"1.0.0"}`, "no plugins", 7},
		{`{"name":"n","cniVersion":"1.0.0","plugins":{}}`, "plugins is object", 6},
		{`{"name":"n","cniVersion":"1.0.0","plugins":[{}]}`, "plugins[0]: plugin: type is empty", 7},
		{`{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"../sh"}]}`, "plugins[0]", 7},
		{`{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"x"},{"type":3}]}`, "plugins[1]: plugin: type is number", 6},
		{`{"name":"n","cniVersions":["7.0.0"],"plugins":[{"type":"x"}]}`, "7.0.0", 1},
		{`{"name":"n","disableCheck":"perhaps","plugins":[{"type":"x"}]}`, "disableCheck", 6},
		{`{"name":"-n","cniVersion":"1.0.0","plugins":[{"type":"x"}]}`, "-n", 7},
	} {
		_, err := ParseNetwork([]byte(tc.conf))
		if err == nil || code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v code %d, want %q code %d", tc.conf, err, code(err), tc.want, tc.code)
		}
	}
}

func TestDerive(t *testing.T) {
	n, err := ParseNetwork([]byte(`{"cniVersion":"1.0.0","name":"n","plugins":[
		{"type":"a","capabilities":{"ips":true,"mac":false,"bandwidth":true},"keep":[1,2]},
		{"type":"b","args":{"cni":{"labels":1}},"cni.dev/valid-attachments":[]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Derive(n, map[string]any{"ips": []string{"10.0.0.1/24"}, "mac": "02:00:00:00:00:01", "portMappings": 1},
		map[string]any{"x": true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"args":{"cni":{"x":true}},"cniVersion":"1.0.0","keep":[1,2],"name":"n","runtimeConfig":{"ips":["10.0.0.1/24"]},"type":"a"}`,
		`{"args":{"cni":{"labels":1,"x":true}},"cniVersion":"1.0.0","name":"n","type":"b"}`,
	}
	for i, w := range want {
		if got := string(d.Plugins[i].Raw); got != w {
			t.Errorf("plugin %d:\ngot  %s\nwant %s", i, got, w)
		}
	}
	if strings.Contains(string(n.Plugins[0].Raw), "runtimeConfig") {
		t.Error("Derive changed its input")
	}
}

func TestParsePluginAndBack(t *testing.T) {
	in := `{"cniVersion":"0.3.1","name":"n","type":"portmap","snat":true,"capabilities":{"portMappings":true},
		"prevResult":{"ips":[{"version":"4","address":"10.0.0.5/24","gateway":"10.0.0.1","interface":0}],"interfaces":[{"name":"eth0"}]}}`
	n, prev, err := ParsePlugin([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if prev == nil || len(prev.IPs) != 1 || prev.IPs[0].Address.String() != "10.0.0.5/24" || *prev.IPs[0].Interface != 0 {
		t.Fatalf("prevResult %+v", prev)
	}
	if got, want := string(n.Plugins[0].Raw), `{"cniVersion":"0.3.1","name":"n","snat":true,"type":"portmap"}`; got !=
		want {
		t.Errorf("raw %s, want %s", got, want)
	}
	out, err := WithPrev(n.Plugins[0], "0.3.1", prev)
	if err != nil {
		t.Fatal(err)
	}
	again, prev2, err := ParsePlugin(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prev, prev2,
		cmp.Comparer(func(a, b model.IP) bool { return a.Address == b.Address && a.Gateway == b.Gateway })); diff != "" {
		t.Errorf("prevResult (-want +got):\n%s", diff)
	}
	if string(again.Plugins[0].Raw) != string(n.Plugins[0].Raw) {
		t.Errorf("raw changed: %s", again.Plugins[0].Raw)
	}
	for _, bad := range []string{
		`{"name":"n","type":"x","prevResult":[]}`,
		`{"name":"n","cniVersion":"1.0.0","type":"x","prevResult":{"ips":[{"address":"x"}]}}`,
	} {
		if _, _, err := ParsePlugin([]byte(bad)); code(err) != model.CodeDecode {
			t.Errorf("%s: %v", bad, err)
		}
		if _, err := PrevResult([]byte(bad)); code(err) != model.CodeDecode {
			t.Errorf("prevResult of %s: %v", bad, err)
		}
	}
}

func TestWithValid(t *testing.T) {
	p := model.PluginConf{Type: "x", Raw: json.RawMessage(`{"name":"n","type":"x"}`)}
	got, err := WithValid(p, "1.1.0", []model.AttachmentKey{{Network: "n", ContainerID: "c", IfName: "eth0"}})
	want := `{"cni.dev/attachments":[{"containerID":"c","ifname":"eth0"}],"cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}],"cniVersion":"1.1.0","name":"n","type":"x"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s %v", got, err)
	}
}

func FuzzParseNetwork(f *testing.F) {
	f.Add(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a","capabilities":{"ips":true}}]}`)
	f.Add(`{"name":"n","type":"bridge","prevResult":{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/24"}}}`)
	f.Add(`{"name":"n","plugins":[{"type":"weft-cni","delegates":[{"name":"x","type":"ptp"}]}],"plugins":[{}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNetwork([]byte(s))
		if err == nil {
			if _, err := Derive(n, map[string]any{"ips": []string{"1.2.3.4"}}, map[string]any{"a": 1}); err != nil &&
				code(err) == 0 {
				t.Fatalf("Derive: %v", err)
			}
			Lint(n, nil, nil)
		} else if code(err) == 0 {
			t.Fatalf("error without a code: %v", err)
		}
		_, prev, err := ParsePlugin([]byte(s))
		if err != nil && code(err) == 0 {
			t.Fatalf("ParsePlugin: error without a code: %v", err)
		}
		if same, bad := PrevResult([]byte(s)); err == nil && (bad != nil || !reflect.DeepEqual(same, prev)) {
			t.Fatalf("PrevResult: %+v, %v, of ParsePlugin: %+v", same, bad, prev)
		}
		Examine([]byte(s), nil, nil)
	})
}
