// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// behind returns the chain after a bridge with addresses of both families.
func behind() Chain {
	in := Input{
		Conf: confOf(`{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipam":{"type":"x"}}`), IPAM: dual(),
		Request: request(),
	}
	step, err := Bridge{}.Plan(in)
	if err != nil {
		panic(err)
	}
	return Chain{Prev: &step.Result, Fragment: step.Fragment, Pending: step.Fragment}
}

// inKernel returns a result with an interface that exists in the kernel.
func inKernel() Chain {
	r := dual()
	zero := 0
	for i := range r.IPs {
		r.IPs[i].Interface = &zero
	}
	r.Interfaces = []model.Interface{{Name: "eth0", MAC: "02:00:00:00:00:01", Sandbox: request().Netns}}
	return Chain{Prev: r}
}

func answers(list ...state.Answers) state.Answers {
	out := state.Answers{}
	for _, m := range list {
		for q, a := range m {
			out[q] = a
		}
	}
	return out
}

func podSysctl(name, value string) state.Answers {
	return state.Answers{{Space: state.Pod, Sysctl: name}: {Found: true, Value: value}}
}

func podRoutes(routes ...state.Route) state.Answers {
	return state.Answers{
		tablesQuery(): {
			Found: true, Tables: []uint32{
				100, 254, 255,
			}, Rules: []state.Rule{{Table: 255}, {Priority: 900, Table: 100}, {Priority: 32766, Table: 254}},
		},
		routesQuery("eth0"): {Found: true, Routes: routes},
	}
}

func route(dst, gw, src string, metric uint32) state.Route {
	scope := state.ScopeLink
	r := state.Route{
		Dst: netip.MustParsePrefix(dst), Link: "eth0", Table: mainTable, Metric: metric, Protocol: 2, Scope: &scope, Type: 1,
	}
	if gw != "" {
		r.Gw = netip.MustParseAddr(gw)
	}
	if src != "" {
		r.Src = netip.MustParseAddr(src)
	}
	return r
}

func theDevice(d state.Device, pci, driver string) state.Answers {
	thousand := 1000
	return state.Answers{{Space: state.Host, Device: d}: {
		Found: true, PCI: pci, Driver: driver,
		Link: state.Link{
			Name: "ens5", MAC: state.MAC{2, 0, 0, 0, 0, 5}, MTU: 1450, TxQLen: &thousand, Up: state.On(), Promisc: state.Off(),
			AllMulti: state.Off(), Alias: "uplink", Master: "br0", Port: &state.PortAttrs{Hairpin: state.On()},
		},
		Addrs: []state.Addr{{Link: "ens5", Prefix: netip.MustParsePrefix("192.0.2.5/24")}},
		Routes: []state.Route{
			{Dst: netip.MustParsePrefix("198.51.100.0/24"), Gw: netip.MustParseAddr("192.0.2.1"), Link: "ens5", Protocol: 4},
		},
		Sysctls: []state.Sysctl{{Name: "net/ipv4/conf/ens5/rp_filter", Value: "2", IfPresent: true}},
	}}
}

func tuneGoldens() map[string]Input {
	thousand := 1000
	eth0 := exists(state.Pod, state.Link{
		Name: "eth0", MAC: state.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500, TxQLen: &thousand, Up: state.On(), Promisc: state.Off(),
		AllMulti: state.Off(),
	})
	const tuned = `{"type":"tuning","mac":"02:00:00:00:00:77","mtu":1400,"promisc":true,"allmulti":true,"txQLen":0,
		"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net.core.somaxconn":"500"}}`
	return map[string]Input{
		"tuning": {
			Conf: confOf(tuned), Chain: inKernel(),
			Answers: answers(eth0, podSysctl("net/core/somaxconn", "4096"), podSysctl("net/ipv4/conf/eth0/arp_filter", "0"),
				state.Answers{allowList(): {Found: true, Value: "^net.core\\.\n\n arp_filter$ \n"}}),
		},
		"tuning-chain": {Conf: confOf(tuned), Chain: behind(), Answers: podSysctl("net/core/somaxconn", "4096")},
		"tuning-args": {
			Conf: confOf(
				`{"type":"tuning","MAC":"02:00:00:00:00:77","MTU":1400,"promisc":true,"allmulti":true,"txQLen":5,"sysctl":{"net.core.somaxconn":"1"},"dataDir":"/data/",
			"args":{"cni":{"mac":"02-00-00-00-00-78","mtu":1300,"promisc":false,"allmulti":false,"txQLen":7,"sysctl":{"net/core/somaxconn":"2","net/ipv4/conf/eth0.100/arp_filter":"1"}}},"runtimeConfig":{"mac":"02:00:00:00:00:79"}}`),
			Chain: inKernel(), Answers: eth0,
		},
		"tuning-nothing": {Conf: confOf(`{"type":"tuning","args":{},"runtimeConfig":{}}`), Chain: inKernel()},
		"sbr":            {Conf: confOf(`{"type":"sbr"}`), Chain: behind(), Answers: podRoutes()},
		"sbr-kernel": {Conf: confOf(`{"type":"sbr"}`), Chain: inKernel(), Answers: podRoutes(
			route("10.1.0.0/24", "", "10.1.0.5", 0), route("0.0.0.0/0", "10.1.0.1", "", 0),
			route("10.9.0.0/24", "", "10.9.0.5", 0),
			route("fd00:1::/64", "", "", 256), route("fe80::/64", "", "", 256), route("::/0", "fd00:1::1", "", 1024))},
		"sbr-table": {Conf: confOf(`{"type":"sbr","table":77}`), Chain: inKernel(), Answers: podRoutes()},
		"host-device": {
			Conf: confOf(`{"type":"host-device","device":"ens5","ipam":{"type":"x"},"dns":{"domain":"d"}}`), IPAM: dual(),
			Answers: theDevice(state.Device{Name: "ens5"}, "", ""),
		},
		"host-device-probe": {
			Conf: confOf(`{"type":"host-device","device":"ens5","dadTimeout":200,"ipam":{"type":"x"}}`), IPAM: v4(),
			Answers: theDevice(state.Device{Name: "ens5"}, "", ""),
		},
		"host-device-l2": {
			Conf:    confOf(`{"type":"host-device","hwaddr":"02:00:00:00:00:05"}`),
			Answers: theDevice(state.Device{MAC: state.MAC{2, 0, 0, 0, 0, 5}}, "", ""),
		},
		"host-device-id": {
			Conf:    confOf(`{"type":"host-device","pciBusID":"0000:00:01.0","runtimeConfig":{"deviceID":"0000:00:05.0"}}`),
			Answers: theDevice(state.Device{ID: "0000:00:05.0"}, "0000:00:05.0", "virtio-pci"),
		},
		"host-device-dpdk": {
			Conf: confOf(`{"type":"host-device","pciBusID":"0000:00:05.0","ipam":{"type":"x"}}`), IPAM: v4(),
			Answers: theDevice(state.Device{PCI: "0000:00:05.0"}, "0000:00:05.0", "vfio-pci"),
		},
	}
}

func askTune(q state.Query) string {
	switch {
	case !q.Device.IsZero():
		return fmt.Sprintf("device %+v", q.Device)
	case q.File != "":
		return "file " + q.File
	case q.Routes != "":
		return fmt.Sprintf("routes %s main %t", q.Routes, q.Main)
	case q.Tables:
		return "tables"
	}
	return ""
}

// showTune prints the parts of a plan that only plugins that change an interface have.
func showTune(b *strings.Builder, s Step) {
	if s.Pending != nil {
		b.WriteString("pod as it is made now:\n")
		showSpace(b, s.Pending.Pod)
	}
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		if !s.Restore.Space(name).Empty() {
			fmt.Fprintf(b, "restore %s:\n", name)
			showSpace(b, *s.Restore.Space(name))
		}
	}
	if s.Backup != nil {
		fmt.Fprintf(b, "backup %s:\n%s\n", s.Backup.Path, s.Backup.Text)
	}
}

// TestTuneRefusals has invalid configurations and their errors.
func TestTuneRefusals(t *testing.T) {
	here, unset := inKernel(), Chain{}
	for _, tc := range []struct {
		conf  string
		chain Chain
		code  model.Code
		want  string
	}{
		{`{"type":"tuning","mtu":"1400"}`, here, 6, `plugin tuning: mtu is string, want int`},
		{`{"type":"tuning","promisc":1}`, here, 6, `plugin tuning: promisc is number, want bool`},
		{`{"type":"tuning","allmulti":"yes"}`, here, 6, `plugin tuning: allmulti is string, want bool`},
		{`{"type":"tuning","txQLen":true}`, here, 6, `plugin tuning: txQLen is bool, want int`},
		{`{"type":"tuning","mac":5}`, here, 6, `plugin tuning: mac is number, want string`},
		{`{"type":"tuning","dataDir":{}}`, here, 6, `plugin tuning: dataDir is object, want string`},
		{`{"type":"tuning","args":{"cni":{"mtu":1.5}}}`, here, 6, `plugin tuning: args.cni.mtu is number 1.5, want int`},
		{
			`{"type":"tuning","sysctl":["a"]}`, here, 6,
			`plugin tuning: sysctl ["a"] is not an object (an object: {"net.core.somaxconn": "500"})`,
		},
		{
			`{"type":"tuning","sysctl":{"net.core.somaxconn":500}}`, here, 6,
			`plugin tuning: sysctl: the value of "net.core.somaxconn" is not a string (write it in quotes)`,
		},
		{
			`{"type":"tuning","args":{"cni":{"sysctl":{"net.a":null}}}}`, here, 6,
			`plugin tuning: args.cni.sysctl: the value of "net.a" is not a string (write it in quotes)`,
		},
		{
			`{"type":"tuning","mtu":67}`, here, 7,
			`plugin tuning: mtu 67 is not between 68 and 65535 (0 leaves it to the kernel)`,
		},
		{
			`{"type":"tuning","args":{"cni":{"mtu":65536}}}`, here, 7,
			`plugin tuning: mtu 65536 is not between 68 and 65535 (0 leaves it to the kernel)`,
		},
		{
			`{"type":"tuning","txQLen":-1}`, here, 7,
			`plugin tuning: txQLen -1 is not between 0 and 2147483647 (it is a number of packets)`,
		},
		{
			`{"type":"tuning","mac":"zz"}`, here, 7,
			`plugin tuning: mac: MAC address "zz": address zz: invalid MAC address (six bytes, for example 02:00:00:00:00:01)`,
		},
		{
			`{"type":"tuning","runtimeConfig":{"mac":"01:00:00:00:00:01"}}`, here, 7,
			`plugin tuning: runtimeConfig.mac: 01:00:00:00:00:01 is not a unicast address (the lowest bit of the first byte must be 0)`,
		},
		{
			`{"type":"tuning","args":{"cni":{"mac":"02:00:00:00:00:00:00:01"}}}`, here, 7,
			`plugin tuning: args.cni.mac: MAC address "02:00:00:00:00:00:00:01": 8 bytes, want 6 (six bytes, for example 02:00:00:00:00:01)`,
		},
		{
			`{"type":"tuning","dataDir":"run"}`, here, 7,
			`plugin tuning: dataDir "run" is not absolute (an absolute path, or nothing for /run/cni/tuning)`,
		},
		{
			`{"type":"tuning","sysctl":{"kernel.shmmax":"1"}}`, here, 7,
			`plugin tuning: sysctl: "kernel.shmmax" is not a sysctl below net (for example net.ipv4.conf.IFNAME.arp_filter)`,
		},
		{
			`{"type":"tuning","sysctl":{"net/../kernel/shmmax":"1"}}`, here, 7,
			`plugin tuning: sysctl: "net/../kernel/shmmax" is not a sysctl below net (for example net.ipv4.conf.IFNAME.arp_filter)`,
		},
		{
			`{"type":"tuning","sysctl":{"net":"1"}}`, here, 7,
			`plugin tuning: sysctl: "net" is not a sysctl below net (for example net.ipv4.conf.IFNAME.arp_filter)`,
		},
		{
			`{"type":"tuning","sysctl":{"net.core.x":"1","net/core/x":"2"}}`, here, 7,
			`plugin tuning: sysctl: "net.core.x" and "net/core/x" are the same setting (leave one out)`,
		},
		{
			`{"type":"tuning","sysctl":{"net.core.x":"1","net.core.x":"1"}}`, here, 7,
			`plugin tuning: sysctl: "net.core.x" and "net.core.x" are the same setting (leave one out)`,
		},
		{
			`{"type":"tuning","mtu":1400}`, unset, 7,
			`plugin tuning: prevResult is missing (put it into a list, after the plugin that creates the interface)`,
		},
		{
			`{"type":"tuning","mtu":1400}`, here, 7,
			`plugin tuning: interface "eth0" does not exist in /run/netns/c0ffee (put the plugin after the one that creates the interface)`,
		},
		{`{"type":"sbr","table":"x"}`, here, 6, `plugin sbr: table is string, want uint32`},
		{`{"type":"sbr","table":-1}`, here, 6, `plugin sbr: table is number -1, want uint32`},
		{
			`{"type":"sbr","table":0}`, here, 7,
			`plugin sbr: table 0 is the kernel's own (leave it out to use a free one)`,
		},
		{
			`{"type":"sbr","table":255}`, here, 7,
			`plugin sbr: table 255 is the kernel's own (leave it out to use a free one)`,
		},
		{
			`{"type":"sbr"}`, unset, 7,
			`plugin sbr: prevResult is missing (put it into a list, after the plugin that creates the interface)`,
		},
		{
			`{"type":"sbr"}`, here, 7,
			`plugin sbr: interface "eth0" does not exist in /run/netns/c0ffee (put the plugin after the one that creates the interface)`,
		},
		{`{"type":"host-device","device":5}`, unset, 6, `plugin host-device: device is number, want string`},
		{`{"type":"host-device","ipam":[]}`, unset, 6, `plugin host-device: ipam is array, want object`},
		{`{"type":"host-device"}`, unset, 7, `plugin host-device: no device is named (` + nameOneDevice + `)`},
		{
			`{"type":"host-device","device":"lo"}`, unset, 7,
			`plugin host-device: device "lo" cannot be moved (every namespace has its own)`,
		},
		{
			`{"type":"host-device","device":"a/b"}`, unset, 7,
			`plugin host-device: device "a/b" is not a valid device name (ip link shows the node's devices)`,
		},
		{
			`{"type":"host-device","hwaddr":"x"}`, unset, 7,
			`plugin host-device: hwaddr: MAC address "x": address x: invalid MAC address (six bytes, for example 02:00:00:00:00:01)`,
		},
		{
			`{"type":"host-device","hwaddr":"00:00:00:00:00:00"}`, unset, 7,
			`plugin host-device: hwaddr 00:00:00:00:00:00 is not a valid MAC address`,
		},
		{
			`{"type":"host-device","kernelpath":"/etc"}`, unset, 7,
			`plugin host-device: kernelpath "/etc" is not a path below /sys/devices (for example /sys/devices/pci0000:00/0000:00:1f.6)`,
		},
		{
			`{"type":"host-device","kernelpath":"/sys/devices/../bus"}`, unset, 7,
			`plugin host-device: kernelpath "/sys/devices/../bus" is not a path below /sys/devices (for example /sys/devices/pci0000:00/0000:00:1f.6)`,
		},
		{
			`{"type":"host-device","pciBusID":"../x"}`, unset, 7,
			`plugin host-device: pciBusID "../x" is not a bus address (for example 0000:00:1f.6)`,
		},
		{
			`{"type":"host-device","runtimeConfig":{"deviceID":".."}}`, unset, 7,
			`plugin host-device: runtimeConfig.deviceID ".." is not a bus address (for example 0000:00:1f.6)`,
		},
		{
			`{"type":"host-device","device":"ens5"}`, unset, 7,
			`plugin host-device: device "ens5" is not on this node (it may already be in a container)`,
		},
	} {
		in := Input{Conf: confOf(tc.conf), Request: request(), Chain: tc.chain}
		_, err := Builtin()[in.Conf.Type].Plan(in)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || err.Error() != tc.want {
			t.Errorf("%s:\ngot  %v\nwant %s", tc.conf, err, tc.want)
		}
	}
}

func TestTuneRefusalsOfFacts(t *testing.T) {
	list := func(text string) state.Answers { return state.Answers{allowList(): {Found: true, Value: text}} }
	somewhere := inKernel()
	somewhere.Prev.Interfaces[0].Name = "net1"
	conf := confOf(`{"type":"tuning","sysctl":{"net.core.somaxconn":"1"}}`)
	for _, tc := range []struct {
		in   Input
		want string
	}{
		{
			Input{Conf: conf, Answers: list("^net.ipv4\n")},
			`plugin tuning: sysctl "net.core.somaxconn" is not allowed by /etc/cni/tuning/allowlist.conf (the node's administrator can add it to the file)`,
		},
		{
			Input{
				Conf: conf, Answers: list(""),
			},
			`plugin tuning: sysctl "net.core.somaxconn" is not allowed by /etc/cni/tuning/allowlist.conf (the node's administrator can add it to the file)`,
		},
		{
			Input{
				Conf: conf, Answers: list("("),
			}, "plugin tuning: /etc/cni/tuning/allowlist.conf: error parsing regexp: missing closing ): `(`",
		},
		{
			Input{Conf: confOf(`{"type":"sbr"}`), Answers: podRoutes(), Chain: somewhere},
			`plugin sbr: prevResult has no address of interface "eth0" (rules select by source address)`,
		},
		{
			Input{
				Conf:    confOf(`{"type":"host-device","device":"ens5"}`),
				Answers: answers(theDevice(state.Device{Name: "ens5"}, "", ""), exists(state.Pod, state.Link{Name: "eth0"})),
			},
			`interface "eth0" exists already in /run/netns/c0ffee (DEL the attachment that uses it, or choose another CNI_IFNAME)`,
		},
		{
			Input{
				Conf: confOf(`{"type":"host-device","pciBusID":"0000:00:05.0"}`),
				Answers: state.Answers{
					{Space: state.Host, Device: state.Device{PCI: "0000:00:05.0"}}: {Found: true, Driver: "e1000"},
				},
			},
			`plugin host-device: device with pciBusID "0000:00:05.0" has no network device on this node (it may already be in a container, or has no driver)`,
		},
	} {
		tc.in.Request = request()
		if tc.in.Chain.Prev == nil {
			tc.in.Chain = inKernel()
		}
		if _, err := Builtin()[tc.in.Conf.Type].Plan(tc.in); err == nil || err.Error() != tc.want {
			t.Errorf("%s:\ngot  %v\nwant %s", tc.in.Conf.Raw, err, tc.want)
		}
	}
}

// CNI_ARGS take precedence over the configuration, and runtimeConfig over CNI_ARGS.
func TestTuningMAC(t *testing.T) {
	for conf, want := range map[string]string{
		`{"type":"tuning","mac":"02:00:00:00:00:01"}`:                                                              "02:00:00:00:00:02",
		`{"type":"tuning","runtimeConfig":{"mac":"02:00:00:00:00:03"}}`:                                            "02:00:00:00:00:03",
		`{"type":"tuning","runtimeConfig":{"mac":"02:00:00:00:00:03"},"args":{"cni":{"mac":"02:00:00:00:00:04"}}}`: "02:00:00:00:00:04",
	} {
		in := Input{Conf: confOf(conf), Request: request(), Chain: behind()}
		in.Request.Args = [][2]string{{"MAC", "02:00:00:00:00:02"}}
		step, err := Tuning{}.Plan(in)
		if err != nil || step.Fragment.Pod.Links[0].MAC.String() != want {
			t.Errorf("%s: %v %v, want %s", conf, step.Fragment.Pod.Links, err, want)
		}
	}
}

// FuzzTuning plans arbitrary sysctl objects: every path is below net, and none occurs twice.
func FuzzTuning(f *testing.F) {
	f.Add(`{"net.core.x":"1"}`, `{"net/core/x":"2"}`)
	f.Add(`{"net.ipv4.conf.IFNAME.x":"1","a":`, `null`)
	f.Fuzz(func(t *testing.T, sysctl, args string) {
		raw := json.RawMessage(`{"type":"tuning","sysctl":` + sysctl + `,"args":{"cni":{"sysctl":` + args + `}}}`)
		c, err := readTuning(Input{Conf: model.PluginConf{Type: "tuning", Raw: raw}, Request: request()})
		var fault *model.Error
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("error without a code: %v", err)
		}
		seen := map[string]bool{}
		for _, s := range c.sysctls {
			if err == nil &&
				(seen[s.path] || !strings.HasPrefix(s.path, "net/") ||
					strings.Contains(s.path, "..") && strings.Contains("/"+s.path+"/", "/../")) {
				t.Fatalf("%s %s: %+v", sysctl, args, c.sysctls)
			}
			seen[s.path] = true
		}
	})
}

func TestTuneWarnings(t *testing.T) {
	for conf, want := range map[string]string{
		`{"type":"tuning","mtu":1280,"dataDir":"/d"}`: "",
		`{"type":"tuning","mtu":1000}`:                "mtu: with an mtu below 1280 the interface has no IPv6 (IPv4 works)",
		`{"type":"tuning","dataDir":"/d"}`:            "dataDir: dataDir has no effect on settings: it is about the interface (leave it out)",
		`{"type":"tuning","mtu":"x"}`:                 "",
		`{"type":"sbr"}`:                              "",
		`{"type":"sbr","table":100}`:                  "",
		`{"type":"sbr","table":254}`:                  "table: table 254 is the main table: the rules have no effect (leave it out to use a free one)",
		`{"type":"sbr","table":-254}`:                 "",
	} {
		c := confOf(conf)
		warnings := Builtin()[c.Type].(interface {
			Warnings(json.RawMessage) []model.Warning
		}).Warnings(c.Raw)
		var got []string
		for _, d := range warnings {
			got = append(got, fmt.Sprintf("%s: %s (%s)", d.Field, d.Msg, d.Hint))
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s: %v, want %q", conf, got, want)
		}
	}
}

// FuzzTune plans arbitrary configurations after a bridge, as far as planning goes: no setting occurs twice.
func FuzzTune(f *testing.F) {
	for _, in := range tuneGoldens() {
		f.Add(string(in.Conf.Raw))
	}
	f.Fuzz(func(t *testing.T, conf string) {
		for _, kind := range []string{"tuning", "sbr", "host-device"} {
			in := Input{
				Conf: model.PluginConf{Type: kind, Raw: json.RawMessage(conf)}, Request: request(), IPAM: dual(), Chain: behind(),
				Answers: podRoutes(),
			}
			queries, _ := Builtin()[kind].Observe(in)
			for _, q := range queries {
				if !q.Device.IsZero() {
					in.Answers[q] = theDevice(q.Device, "", "")[q]
				}
			}
			step, err := Builtin()[kind].Plan(in)
			var fault *model.Error
			if err != nil && !errors.As(err, &fault) {
				t.Fatalf("%s: error without a code: %v", kind, err)
			}
			if err != nil {
				continue
			}
			all := in.Chain.Pending
			if step.Pending != nil {
				all = *step.Pending
			}
			all.Merge(step.Fragment)
			seen := map[string]bool{}
			for _, l := range all.Pod.Links {
				if kind != "host-device" && seen["link "+l.Name] {
					t.Fatalf("%s: two links %s", kind, l.Name)
				}
				seen["link "+l.Name] = true
			}
			for _, s := range all.Pod.Sysctls {
				if seen[s.Name] || !strings.HasPrefix(s.Name, "net/") {
					t.Fatalf("%s: setting %s", kind, s)
				}
				seen[s.Name] = true
			}
			if kind == "host-device" && (len(step.Restore.Host.Links) != 1 || step.Restore.Host.Links[0].Name != "ens5") {
				t.Fatalf("pre-image %+v", step.Restore)
			}
		}
	})
}

// TestTunedGuard: a guarded port permits the MAC address that tuning sets in its container, too.
func TestTunedGuard(t *testing.T) {
	in := Input{
		Conf: confOf(`{"type":"bridge","bridge":"br0","guard":true,"ipam":{"type":"x"}}`), IPAM: dual(), Request: request(),
	}
	step, err := Bridge{}.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	chain := Chain{Prev: &step.Result, Fragment: step.Fragment, Pending: step.Fragment}
	tuned, err := Tuning{}.Plan(Input{
		Conf: confOf(`{"type":"tuning","mac":"02:00:00:00:00:77"}`), Request: request(), Chain: chain,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tuned.Fragment.Host.Tables) != 1 {
		t.Fatalf("%d tables", len(tuned.Fragment.Host.Tables))
	}
	got := map[string]int{}
	for _, s := range tuned.Fragment.Host.Tables[0].Sets {
		for _, e := range s.Elements {
			if e.Key[1] != "02:00:00:00:00:77" {
				t.Errorf("%s has %v", s.Name, e.Key)
			}
			got[s.Name]++
		}
	}
	if got["macs"] != 1 || got["own4"] != 1 || got["own6"] != 1 {
		t.Errorf("elements: %v", got)
	}
}
