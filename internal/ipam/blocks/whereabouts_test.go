// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
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
	result, err := a.engine.Allocators()[1].Add(context.Background(), a.req(everyKey, key("c")))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	want :=
		`{"ips":[{"address":"192.168.2.226/28","gateway":"192.168.2.238"},{"address":"fd00:1::12/64"},{"address":"10.7.0.10/16"},` +
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

// TestEachKey has what each key does, alone: the result, or what is said of it.
func TestEachKey(t *testing.T) {
	_, path := cluster(t, nil)
	a := join(t, path, "a", nil)
	const lease, store, log = "blocks are claimed with compare-and-swap, no leader is elected",
		"the agent knows where the cluster's objects are", "the agent has one log"
	for i, c := range []struct{ ipam, want, warning string }{
		{`"range":"10.0.0.0/24"`, "10.0.0.1/24", ""},
		{`"range":"10.1.0.5-10.1.0.9/24"`, "10.1.0.5/24", ""},
		{`"range":"fd00::/64"`, "fd00::1/64", ""},
		{`"range":"10.2.0.0/24","range_start":"10.2.0.7"`, "10.2.0.7/24", ""},
		{`"range":"10.3.0.0/24","range_start":"10.3.0.9","range_end":"10.3.0.9"`, "10.3.0.9/24", ""},
		{`"range":"10.4.0.0/24","exclude":["10.4.0.0/30","10.4.0.4"]`, "10.4.0.5/24", ""},
		{
			`"ipRanges":[{"range":"10.5.0.0/24","exclude":["10.5.0.1/32"]},{"range":"fd05::/64","range_start":"fd05::9"}]`,
			"10.5.0.2/24 fd05::9/64", "",
		},
		{`"range":"10.6.0.0/24","gateway":"10.6.0.1"`, "10.6.0.2/24 via 10.6.0.1", ""},
		{`"range":"10.6.1.0/24","gateway":"10.7.0.1"`, "10.6.1.1/24 via 10.7.0.1", "gateway 10.7.0.1 is in no range"},
		{`"range":"10.8.0.0/24","routes":[{"dst":"0.0.0.0/0"}]`, "10.8.0.1/24 routes 1", ""},
		{`"range":"10.9.0.0/24","dns":{"nameservers":["1.1.1.1"]}`, "10.9.0.1/24 dns 1", ""},
		{`"addresses":[{"address":"10.10.0.9/24","gateway":"10.10.0.1"}]`, "10.10.0.9/24 via 10.10.0.1", ""},
		{`"range":"10.0.0.0/24","network_name":"blue"`, "10.0.0.1/24", ""},
		{`"range":"10.0.0.0/24","enable_overlapping_ranges":false`, "10.0.0.1/24", ""},
		{`"range":"10.0.0.0/24","enable_overlapping_ranges":true`, "10.0.0.2/24", ""},
		{
			`"range":"10.11.0.0/24","node_slice_size":"/28"`, "10.11.0.1/24",
			"ipam.node_slice_size has no effect: each node has blocks of its own anyway",
		},
		{`"range":"10.12.0.0/24","configuration_path":"/none"`, "10.12.0.1/24", ""},
		{`"range":"10.13.0.0/24","log_file":"/l"`, "10.13.0.1/24", "ipam.log_file has no effect: " + log},
		{`"range":"10.14.0.0/24","log_level":"debug"`, "10.14.0.1/24", "ipam.log_level has no effect: " + log},
		{`"range":"10.15.0.0/24","kubernetes":{"kubeconfig":"k"}`, "10.15.0.1/24", "ipam.kubernetes has no effect: " + store},
		{
			`"range":"10.16.0.0/24","leader_lease_duration":1500`, "10.16.0.1/24",
			"ipam.leader_lease_duration has no effect: " + lease,
		},
		{
			`"range":"10.17.0.0/24","leader_renew_deadline":1000`, "10.17.0.1/24",
			"ipam.leader_renew_deadline has no effect: " + lease,
		},
		{
			`"range":"10.18.0.0/24","leader_retry_period":500`, "10.18.0.1/24",
			"ipam.leader_retry_period has no effect: " + lease,
		},
		{`"range":"10.19.0.0/24","sleep_for_race":1`, "10.19.0.1/24", "ipam.sleep_for_race has no effect: " + lease},
		{
			`"range":"10.20.0.0/24","reconciler_cron_expression":"30 4 * * *"`, "10.20.0.1/24",
			"ipam.reconciler_cron_expression has no effect: nothing is left behind that would have to be collected",
		},
		{`"range":"10.21.0.0/24","datastore":"etcd"`, "10.21.0.1/24", "ipam.datastore has no effect: " + store},
		{`"range":"10.22.0.0/24","etcd_host":"h"`, "10.22.0.1/24", "ipam.etcd_host has no effect: " + store},
	} {
		conf := `{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{"type":"whereabouts",` + c.ipam + `}}`
		allocator := a.engine.Allocators()[1]
		result, err := allocator.Add(context.Background(), a.req(conf, key(fmt.Sprint("k", i))))
		if err != nil {
			t.Errorf("%s: %v", c.ipam, err)
			continue
		}
		var got []string
		for _, ip := range result.IPs {
			got = append(got, ip.Address.String())
			if ip.Gateway.IsValid() {
				got = append(got, "via", ip.Gateway.String())
			}
		}
		if n := len(result.Routes); n > 0 {
			got = append(got, "routes", fmt.Sprint(n))
		}
		if n := len(result.DNS.Nameservers); n > 0 {
			got = append(got, "dns", fmt.Sprint(n))
		}
		warning := ""
		for _, d := range allocator.(interface {
			Warnings(json.RawMessage) []model.Warning
		}).Warnings(json.RawMessage(conf)) {
			warning += d.Msg
		}
		if strings.Join(got, " ") != c.want || warning != c.warning {
			t.Errorf("%s: %q, want %q; said %q, want %q", c.ipam, strings.Join(got, " "), c.want, warning, c.warning)
		}
	}
}

func TestExcludedIsNotAllocated(t *testing.T) {
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

// TestImport: what whereabouts has allocated is not allocated again, and free when its attachment is deleted.
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
	if err := a.engine.Allocators()[1].Del(context.Background(), ipam.Request{
		Conf: json.RawMessage(conf), Network: "net", ContainerID: "c-one", IfName: "net1",
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.reconciler.reconcile(context.Background()); err != nil {
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
