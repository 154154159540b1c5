// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cni"
)

// remembered is Multus' memory of a sandbox: a list as the cluster's network, and a plugin that the pod asked for.
func remembered() string {
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	list := encode(
		`{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"},{"type":"portmap","capabilities":{"portMappings":true}}]}`,
	)
	one := encode(`{"type":"macvlan","name":"macvlan-conf"}`)
	return fmt.Sprintf(
		`[{"Conf":{"name":"cbr0"},"ConfList":{"name":"cbr0","plugins":[]},"Name":"cbr0","IsFilterV4Gateway":false,"Bytes":%q},
	  {"Conf":{"name":"macvlan-conf","type":"macvlan"},"ConfList":{},"Name":"default/macvlan-conf","ifnameRequest":"lan","Bytes":%q}]`, list, one)
}

func TestLeft(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "c1"), remembered())
	write(t, filepath.Join(dir, "results", "cbr0-c1-eth0"),
		`{"kind":"cniCacheV1","capabilityArgs":{"portMappings":[{"hostPort":80}]},
	  "result":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.244.1.5/24"}]}}`)
	call := callOf(t, fmt.Sprintf(delegates, `,"cniDir":"`+dir+`"`))
	s, err := ParseSettings(call, "")
	if err != nil {
		t.Fatal(err)
	}
	left, err := ReadCache(call, s)
	if err != nil || len(left.Attachments) != 2 {
		t.Fatalf("%+v %v", left, err)
	}
	first, second := left.Attachments[0], left.Attachments[1]
	if first.Request.IfName != "eth0" || first.Network.Name != "cbr0" || first.Network.CNIVersion != "0.3.1" ||
		first.Prev == nil || len(first.Prev.IPs) != 1 ||
		!strings.Contains(string(first.Network.Plugins[1].Raw), `"runtimeConfig":{"portMappings":[{"hostPort":80}]}`) {
		t.Errorf("first: %+v", first)
	}
	if second.Request.IfName != "lan" || second.Network.Name != "macvlan-conf" || second.Network.CNIVersion != "1.0.0" ||
		second.Label != "default/macvlan-conf" {
		t.Errorf("second: %+v", second)
	}
	if err := left.Forget(); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, "results")); len(entries) != 0 {
		t.Errorf("results are left: %v", entries)
	}
	if again, err := ReadCache(call, s); err != nil || len(again.Attachments) != 0 {
		t.Errorf("%+v %v", again, err)
	}
}

// What Multus read from a file it remembers whole in one place and in part in the other; the plugin that does nothing
// is left out; what reported of a device goes.
func TestLeftOfFiles(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	plugin := func(s string) string { return fmt.Sprintf(`{"Network":{"type":"x"},"Bytes":%q}`, encode(s)) }
	inPart := encode(`{"cniVersion":"0.3.1","name":"cluster","plugins":[{"type":"passthru"},{"type":"calico"}]}`)
	write(
		t, filepath.Join(root, dir, "c1"), fmt.Sprintf(`[{"Conf":{},"ConfList":{"name":"cluster"},"Name":"cluster","Bytes":%q,
	  "CNINetworkConfigList":{"Name":"cluster","Plugins":[%s,%s,%s],"Bytes":%q}}]`, inPart,
			plugin(`{"type":"passthru"}`), plugin(`{"type":"calico","datastore":"kubernetes"}`),
			plugin(`{"type":"tuning","mtu":1400}`),
			encode(
				`{"cniVersion":"0.3.1","name":"cluster","plugins":[{"type":"passthru"},{"type":"calico","datastore":"kubernetes"}]}`,
			)))
	const changed = attached + "/app-vf-c1_eth0"
	write(t, filepath.Join(root, dir, "results", "cluster-c1-eth0"), `{"capabilityArgs":{"CNIDeviceInfoFile":"`+changed+`"}}`)
	write(t, filepath.Join(root, changed), `{}`)
	left, err := ReadCache(callOf(t, fmt.Sprintf(delegates, "")), Settings{CNIDir: dir, Root: root})
	if err != nil || len(left.Attachments) != 1 {
		t.Fatalf("%+v %v", left, err)
	}
	var got []string
	for _, p := range left.Attachments[0].Network.Plugins {
		got = append(got, string(p.Raw))
	}
	if len(got) != 2 || !strings.Contains(got[0], `"datastore":"kubernetes"`) || !strings.Contains(got[1], `"mtu":1400`) {
		t.Errorf("%q", got)
	}
	if err := left.Forget(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{changed, dir + "/c1", dir + "/results/cluster-c1-eth0"} {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

func FuzzLeft(f *testing.F) {
	f.Add(remembered())
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "c1"), text)
		call := callOf(t, fmt.Sprintf(delegates, ""))
		left, err := ReadCache(call, Settings{CNIDir: dir})
		if err == nil && len(left.Attachments) > 0 {
			_ = left.Forget()
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add(fmt.Sprintf(delegates, `,"globalNamespaces":"a, b","namespaceIsolation":true`))
	f.Add(`{"cniVersion":"0.3.1","name":"m","type":"multus-shim","clusterNetwork":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		env := map[string]string{
			"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/ns", "CNI_IFNAME": "eth0", "CNI_PATH": "/bin",
		}
		call, err := cni.ParseCall(func(k string) string { return env[k] }, []byte(text))
		if err != nil {
			return
		}
		s, err := ParseSettings(call, t.TempDir())
		if err != nil {
			return
		}
		if all, err := (&Resolver{}).Delegates(call, s); err == nil && len(all) > 0 && all[0].Request.IfName != "eth0" {
			t.Errorf("the first interface is %q", all[0].Request.IfName)
		}
	})
}
