// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/ipam"
)

// everyKey has every key that whereabouts knows, dead ones included.
const everyKey = `{
  "cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "eth1",
  "ipam": {
    "type": "whereabouts", "range": "192.168.2.225/28", "range_start": "192.168.2.226", "range_end": "192.168.2.238",
    "exclude": ["192.168.2.229/30", "192.168.2.236"],
    "ipRanges": [{"range": "fd00:1::/64", "range_start": "fd00:1::10", "range_end": "fd00:1::1f", "exclude": ["fd00:1::10/127"]},
                 {"range": "10.7.0.10-10.7.0.20/16"}],
    "gateway": "192.168.2.238", "routes": [{"dst": "10.0.0.0/8", "gw": "192.168.2.238"}], "dns": {"nameservers": ["1.1.1.1"]},
    "addresses": [{"address": "172.16.0.9/24", "gateway": "172.16.0.1"}],
    "log_file": "/tmp/whereabouts.log", "log_level": "debug", "configuration_path": "/etc/w.conf",
    "kubernetes": {"kubeconfig": "/etc/kubeconfig", "k8s_api_root": "https://127.0.0.1:6443"},
    "leader_lease_duration": 1500, "leader_renew_deadline": 1000, "leader_retry_period": 500,
    "reconciler_cron_expression": "30 4 * * *", "enable_overlapping_ranges": true, "sleep_for_race": 0, "network_name": "",
    "node_slice_size": "/26", "datastore": "kubernetes", "etcd_host": "h", "etcd_username": "u", "etcd_password": "p",
    "etcd_key_file": "k", "etcd_cert_file": "c", "etcd_ca_cert_file": "a"
  }}`

func TestEveryKeyIsTaken(t *testing.T) {
	_, path := cluster(t, nil)
	a := join(t, path, "a", nil)
	result, err := a.engine.Allocators()[1].Add(context.Background(), a.ask(everyKey, key("c")))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ips":[{"address":"192.168.2.226/28","gateway":"192.168.2.238"},{"address":"fd00:1::12/64"},{"address":"10.7.0.10/16"},` +
		`{"address":"172.16.0.9/24","gateway":"172.16.0.1"}],"routes":[{"dst":"10.0.0.0/8","gw":"192.168.2.238"}],"dns":{"nameservers":["1.1.1.1"]}}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("result (-want +got):\n%s", d)
	}
	known := map[string]bool{}
	for _, k := range a.engine.Allocators()[1].Keys() {
		first, _, _ := strings.Cut(strings.ReplaceAll(k, "[]", ""), ".")
		known[first] = true
	}
	var conf struct{ IPAM map[string]any }
	if err := json.Unmarshal([]byte(everyKey), &conf); err != nil {
		t.Fatal(err)
	}
	for k := range conf.IPAM {
		if !known[k] {
			t.Errorf("key %q is not known", k)
		}
	}
}

func TestExcludedIsNotGiven(t *testing.T) {
	_, path := cluster(t, nil)
	a := join(t, path, "a", nil)
	conf := rangeConf1("10.0.0.0/28", `"exclude":["10.0.0.0/30","10.0.0.6","10.0.0.12/30"],"gateway":"10.0.0.9"`)
	var got []string
	for i := range 10 {
		addrs, err := a.add(conf, strings.Repeat("x", i+1))
		if err != nil {
			break
		}
		got = append(got, addrs[0].String())
	}
	if d := cmp.Diff([]string{"10.0.0.4", "10.0.0.5", "10.0.0.7", "10.0.0.8", "10.0.0.10", "10.0.0.11"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestPoolsOfRanges(t *testing.T) {
	_, path := cluster(t, nil)
	a, b := join(t, path, "a", nil), join(t, path, "b", nil)
	for _, c := range []struct {
		n        *node
		id, conf string
		want     string
	}{
		{a, "1", rangeConf1("10.0.0.0/24"), "[10.0.0.1]"},
		{b, "2", rangeConf1("10.0.0.0/16"), "[10.0.0.4]"}, // overlaps: another block of the same pool
		{b, "3", rangeConf1("10.0.0.0/24", `"network_name":"blue"`), "[10.0.0.1]"},
		{a, "4", rangeConf1("10.0.0.0/24", `"enable_overlapping_ranges":false`), "[10.0.0.1]"},
		{b, "5", rangeConf1("fd00::/48"), "[fd00::1]"},
		{a, "6", rangeConf1("fd00::/32"), "[fd00::40]"},
	} {
		if got := c.n.mustAdd(c.conf, c.id); got != c.want {
			t.Errorf("%s: %s, want %s", c.conf, got, c.want)
		}
	}
}

func TestFlatFile(t *testing.T) {
	files := map[string]string{
		"/etc/w.conf": `{"range":"10.5.0.0/24","gateway":"10.5.0.1","log_level":"debug"}`,
		"/host/etc/cni/net.d/whereabouts.d/whereabouts.conf": `{"range":"10.6.0.0/24"}`,
	}
	readFile := func(name string) ([]byte, error) {
		if text, is := files[name]; is {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	_, path := cluster(t, nil)
	a := join(t, path, "a", func(c *Config) { c.ReadFile = readFile })
	for id, c := range map[string][2]string{
		"1": {`{"ipam":{"type":"whereabouts","configuration_path":"/etc/w.conf","gateway":"10.5.0.9"}}`, "[10.5.0.1]"},
		"2": {`{"ipam":{"type":"whereabouts"}}`, "[10.6.0.1]"},
	} {
		if got := a.mustAdd(c[0], id); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	files["/etc/w.conf"] = "{"
	if _, err := a.add(`{"ipam":{"type":"whereabouts","configuration_path":"/etc/w.conf"}}`, "3"); err == nil ||
		!strings.Contains(err.Error(), "whereabouts' configuration file /etc/w.conf: unexpected end of JSON input") {
		t.Errorf("broken file: %v", err)
	}
}

// TestImport: what whereabouts has given is not given again, and free when its attachment is deleted.
func TestImport(t *testing.T) {
	s, path := cluster(t, map[string]string{"w.yaml": `
apiVersion: whereabouts.cni.cncf.io/v1alpha1
kind: IPPool
metadata: {name: 10.0.0.0-24, namespace: kube-system}
spec:
  range: 10.0.0.0/24
  allocations:
    "1": {id: c-one, podref: shop/web-0, ifname: net1}
    "3": {id: c-two, podref: shop/web-1, ifname: net1}
---
apiVersion: whereabouts.cni.cncf.io/v1alpha1
kind: IPPool
metadata: {name: fd00----64, namespace: kube-system}
spec:
  range: "fd00::/64"
  allocations:
    "4294967297": {id: c-one, podref: shop/web-0, ifname: net2}
`})
	a := join(t, path, "a", nil)
	conf := rangeConf1("10.0.0.0/24")
	if got := a.mustAdd(conf, "1") + a.mustAdd(conf, "2"); got != "[10.0.0.2][10.0.0.4]" {
		t.Errorf("given: %s", got)
	}
	_, err := a.add(rangeConf1("fd00::/64"), "3", [2]string{"IP", "fd00::1:0:1"})
	if err == nil || !strings.Contains(err.Error(), "address fd00::1:0:1 is taken by shop/web-0 (by whereabouts)") {
		t.Errorf("an address that whereabouts gave: %v", err)
	}
	if err := a.engine.Allocators()[1].Del(context.Background(), ipam.Ask{Conf: json.RawMessage(conf), Network: "net", ContainerID: "c-one", IfName: "net1"}); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.tend(context.Background()); err != nil {
		t.Fatal(err)
	}
	if addrs, err := a.add(conf, "4", [2]string{"IP", "10.0.0.1"}); err != nil || addrs[0].String() != "10.0.0.1" {
		t.Errorf("after the DEL: %v, error %v", addrs, err)
	}
	problems, err := s.Problems()
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}
