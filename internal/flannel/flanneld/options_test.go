// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, env map[string]string, args ...string) (Options, error) {
	t.Helper()
	var o Options
	f := NewFlags(&o)
	f.SetOutput(io.Discard)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := FromEnv(f, func(name string) string { return env[name] }); err != nil {
		return o, err
	}
	return o, o.Check()
}

// TestFlags: every flag of flannel v0.28.9 with its default.
func TestFlags(t *testing.T) {
	var o Options
	got := map[string]string{}
	NewFlags(&o).VisitAll(func(f *flag.Flag) { got[f.Name] = f.DefValue })
	want := map[string]string{
		"etcd-endpoints": "http://127.0.0.1:4001,http://127.0.0.1:2379", "etcd-prefix": "/coreos.com/network",
		"etcd-keyfile": "", "etcd-certfile": "", "etcd-cafile": "",
		"etcd-username": "", "etcd-password": "", "iface": "", "iface-regex": "", "iface-can-reach": "",
		"subnet-file": "/run/flannel/subnet.env",
		"public-ip":   "", "public-ipv6": "", "subnet-lease-renew-margin": "60", "ip-masq": "false",
		"ip-masq-fully-random-disable": "false",
		"kube-subnet-mgr":              "false", "kube-api-url": "", "kube-annotation-prefix": "flannel.alpha.coreos.com",
		"kubeconfig-file": "",
		"healthz-ip":      "0.0.0.0", "healthz-port": "0", "iptables-resync": "5", "iptables-forward-rules": "true",
		"ip-blackhole-route": "false",
		"net-config-path":    "/etc/kube-flannel/net-conf.json", "set-node-network-unavailable": "true", "version": "false",
		"v": "0", "vmodule": "", "log_backtrace_at": "",
		"ip-masq-config": "", "status-file": "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{
		"FLANNELD_ETCD_PREFIX": "/env", "FLANNELD_IFACE": "eth5", "FLANNELD_IP_MASQ": "true", "FLANNELD_IPTABLES_RESYNC": "7",
	}
	o, err := parse(t, env, "-etcd-prefix=/flag", "--iface-regex", "a", "-iface-regex=b")
	if err != nil || o.EtcdPrefix != "/flag" || !slices.Equal(o.Ifaces, []string{"eth5"}) ||
		!slices.Equal(o.IfaceRegexes, []string{"a", "b"}) || !o.IPMasq || o.Resync != 7 {
		t.Errorf("%+v %v", o, err)
	}
	_, err = parse(t, map[string]string{"FLANNELD_IP_MASQ": "perhaps"})
	if err == nil || !strings.HasPrefix(err.Error(), `FLANNELD_IP_MASQ "perhaps" is not true or false (`) {
		t.Error(err)
	}
}

// TestBadOptions: each fault names flag and value.
func TestBadOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--public-ip=fd00::1":              `--public-ip "fd00::1" is not an address of its family (for example --public-ip 192.0.2.7)`,
		"--public-ipv6=10.0.0.1":           `--public-ipv6 "10.0.0.1" is not an address of its family (for example --public-ipv6 2001:db8::7)`,
		"--iface-can-reach=host":           `--iface-can-reach "host" is not an IP address (use the address of another node, for example --iface-can-reach 192.0.2.7)`,
		"--subnet-lease-renew-margin=0":    `--subnet-lease-renew-margin 0 is out of range: 1 to 1439 minutes (for example --subnet-lease-renew-margin 60: a lease lasts for a day)`,
		"--subnet-lease-renew-margin=1440": `--subnet-lease-renew-margin 1440 is out of range: 1 to 1439 minutes (for example --subnet-lease-renew-margin 60: a lease lasts for a day)`,
		"--iptables-resync=9223372037":     `--iptables-resync 9223372037 is out of range: 1 to 9223372036 seconds (for example --iptables-resync 5)`,
		"--iptables-resync=0":              `--iptables-resync 0 is out of range: 1 to 9223372036 seconds (for example --iptables-resync 5)`,
		"--healthz-port=70000":             `--healthz-port 70000 is out of range: 0 to 65535 (for example --healthz-port 8080; 0 disables it)`,
		"--subnet-file=":                   `--subnet-file is empty (for example --subnet-file /run/flannel/subnet.env)`,
		"--healthz-port=80 --healthz-ip=x": `--healthz-ip "x" is not an IP address (for example --healthz-ip 0.0.0.0)`,
		"--kube-annotation-prefix=UPPER":   `--kube-annotation-prefix "UPPER" begins no annotation (write a domain in lower case, or domain/beginning: flannel.alpha.coreos.com)`,
		"--iface-regex=(":                  "--iface-regex \"(\" is not a regular expression: missing closing ): `(` (for example --iface-regex 'eth.*')",
	} {
		_, err := parse(t, nil, strings.Fields(args)...)
		if fmt.Sprint(err) != want {
			t.Errorf("%s:\n%v\nwant %s", args, err, want)
		}
	}
}

func TestEnvironmentAndFlags(t *testing.T) {
	for name, tt := range map[string]struct{ key, value, says string }{
		"none":      {},
		"depth":     {"EVENT_QUEUE_DEPTH", "10000", ""},
		"bad depth": {"EVENT_QUEUE_DEPTH", "many", `EVENT_QUEUE_DEPTH "many" is not a number of events`},
		"go on":     {"CONT_WHEN_CACHE_NOT_READY", "true", ""},
		"bad choice": {
			"CONT_WHEN_CACHE_NOT_READY", "perhaps", `CONT_WHEN_CACHE_NOT_READY "perhaps" is not true or false`,
		},
	} {
		err := checkEnv(func(key string) string {
			if key == tt.key {
				return tt.value
			}
			return ""
		})
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
}
