// SPDX-License-Identifier: Apache-2.0

package cniplan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cli/cniplan"
	"github.com/weft-net/weft/internal/cli/ui"
)

const bridged = `{"cniVersion":"1.0.0","name":"pods","plugins":[
	{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipam":
		{"type":"host-local","dataDir":"/nonexistent/networks","ranges":[[{"subnet":"10.1.0.0/24"}]]}},
	{"type":"tuning","sysctl":{"net.core.somaxconn":"500"}},
	{"type":"portmap","capabilities":{"portMappings":true}},
	{"type":"bandwidth","ingressRate":1000000,"ingressBurst":100000}]}`

// run runs the command with a configuration as its standard input, unless the arguments name a file.
func run(t *testing.T, conf string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out, said bytes.Buffer
	env := ui.Env{
		Args: args, Stdin: strings.NewReader(conf), Stdout: &out, Stderr: &said, Getenv: func(string) string { return "" },
	}
	code = ui.Run(context.Background(), cniplan.NewCmd(env), env)
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left in the directory for temporary files: %v, %v", left, err)
	}
	return code, out.String(), said.String()
}

// TestText checks the objects that a plan shows: a chain's are those of all its plugins, and each network of a list that
// the agent attaches has an interface.
func TestText(t *testing.T) {
	for name, tt := range map[string]struct {
		conf string
		args []string
		want []string
	}{
		"chain": {
			bridged, []string{"--capability-args", `{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`},
			[]string{
				"network pods: interface eth0", "    addr 10.1.0.2/24 dev eth0", "    route 0.0.0.0/0 via 10.1.0.1 dev eth0",
				"    sysctl net/core/somaxconn = 500", "    link br0 kind bridge ", "    addr 10.1.0.1/24 dev br0",
				" master br0 peer eth0@pod ", "    qdisc tbf ", "tcp . 8080 ",
			},
		},
		"dual stack": {
			bridged, []string{"--address", "10.7.0.5/24,gateway=10.7.0.1", "--address", "fd00::5/64,gateway=fd00::1", "-i", "net3"},
			[]string{"interface net3", "addr 10.7.0.5/24 dev net3", "addr fd00::5/64 dev net3", "via fd00::1"},
		},
		"delegates": {
			`{"cniVersion":"1.0.0","name":"p","type":"weft-cni","delegates":[
				{"type":"ptp","ipam":{"type":"static","addresses":[{"address":"10.5.0.3/24","gateway":"10.5.0.1"}]}},
				{"name":"q","type":"macvlan","master":"bond0"}]}`, nil,
			[]string{"network p: interface eth0", "addr 10.5.0.3/24 dev eth0", "network q: interface net1", "upon bond0@host"},
		},
		"link": {
			`{"cniVersion":"1.0.0","name":"v","type":"vlan","master":"bond0","vlanId":7,"mtu":9000,"ipam":{"type":"dhcp"}}`,
			[]string{"--link", "bond0,mtu=9000", "--address", "10.7.0.5/24"}, []string{"link eth0 kind vlan", "mtu 9000"},
		},
		"Calico": {
			`{"cniVersion":"1.0.0","name":"k8s","type":"calico","ipam":{"type":"calico-ipam"}}`, []string{"--address", "10.7.0.5/32"},
			[]string{"route 0.0.0.0/0 via 169.254.1.1 dev eth0", "route 10.7.0.5/32 dev cali"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, said := run(t, tt.conf, append(tt.args, "-")...)
			if code != ui.Good || said != "" {
				t.Fatalf("exit code %d: %s", code, said)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}

// TestJSON checks the document, of the networks in a manifest.
func TestJSON(t *testing.T) {
	code, out, said := run(t, "", "-o", "json", "../../../examples/multi-network/network.yaml")
	var plans []cniplan.Plan
	if err := json.Unmarshal([]byte(out), &plans); code != ui.Good || err != nil || len(plans) != 1 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, said)
	}
	p := plans[0]
	if p.Network != "macvlan-conf" || len(p.Fragment.Pod.Links) != 1 || len(p.Result.IPs) != 1 ||
		p.Result.IPs[0].Address.String() != "10.37.132.20/24" {
		t.Errorf("%+v", p)
	}
}

// TestNothingAllocated checks that a plan neither reads nor writes the allocations of the host.
func TestNothingAllocated(t *testing.T) {
	dir := t.TempDir()
	conf := strings.Replace(bridged, "/nonexistent/networks", dir, 1)
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pods", "10.1.0.2"), []byte("other\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, said := run(t, conf, "-")
	if code != ui.Good || !strings.Contains(out, "addr 10.1.0.2/24") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "pods")); err != nil || len(files) != 1 {
		t.Errorf("files of the network: %v, %v", files, err)
	}
}

// TestBadInput checks that errors name the field and the value, and have a hint.
func TestBadInput(t *testing.T) {
	for name, tt := range map[string]struct {
		conf string
		args []string
		code int
		want []string
	}{
		"vendor": {
			`{"cniVersion":"1.0.0","name":"p","plugins":[{"type":"ptp","ipam":{"type":"static","addresses":[
				{"address":"10.5.0.3/24","gateway":"10.5.0.1"}]}},{"type":"cilium-cni"}]}`, nil, ui.Bad,
			[]string{`plugins[1].type "cilium-cni"`, "hint: "},
		},
		"pool": {
			`{"cniVersion":"1.0.0","name":"p","type":"ptp","ipam":{"type":"dhcp"}}`, nil, ui.Bad,
			[]string{`plugins[0]: ipam.type "dhcp"`, "hint: ", "--address 10."},
		},
		"type":       {`{"cniVersion":"1.0.0","name":"p","type":"ptp","mtu":"x"}`, nil, ui.Bad, []string{"plugins[0]", "mtu is string"}},
		"name":       {`{"cniVersion":"1.0.0","type":"ptp"}`, nil, ui.Bad, []string{"name"}},
		"range":      {strings.Replace(bridged, "10.1.0.0/24", "10.1.0.0/33", 1), nil, ui.Bad, []string{"10.1.0.0/33"}},
		"link":       {bridged, []string{"--link", "eth1,mtu=big"}, ui.Misuse, []string{`--link "eth1,mtu=big"`, "hint: "}},
		"key":        {bridged, []string{"--link", "eth1,speed=1"}, ui.Misuse, []string{`"speed" is not mtu, mac, kind or address`}},
		"address":    {bridged, []string{"--address", "10.1.0.300/24"}, ui.Misuse, []string{`"10.1.0.300/24"`, "hint: "}},
		"gateway":    {bridged, []string{"--address", "10.1.0.3/24,gateway=fd00::1"}, ui.Misuse, []string{`gateway "fd00::1"`, "hint: "}},
		"capability": {bridged, []string{"--capability-args", "[]"}, ui.Misuse, []string{"--capability-args", "hint: "}},
		"mtu": {
			`{"cniVersion":"1.0.0","name":"v","type":"vlan","master":"bond0","vlanId":7,"mtu":9000,"ipam":{"type":"dhcp"}}`,
			[]string{"--address", "10.7.0.5/24"}, ui.Bad, []string{"mtu 9000"},
		},
		"object": {"kind: Pod\napiVersion: v1\nmetadata: {name: x}\n", nil, ui.Bad, []string{"Pod", "hint: "}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, said := run(t, tt.conf, append(tt.args, "-")...)
			if code != tt.code || out != "" {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, out)
			}
			for _, want := range tt.want {
				if !strings.Contains(said, want) {
					t.Errorf("no %q in %s", want, said)
				}
			}
		})
	}
}
