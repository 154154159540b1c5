// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func logTo(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

const threeNetworks = `{"cniVersion":"1.1.0","name":"outer","type":"weft-cni",
  "capabilities":{"portMappings":true},"runtimeConfig":{"portMappings":[{"hostPort":80}],"cgroupPath":"/kube"},"args":{"cni":{"k":"v"}},
  "cni.dev/valid-attachments":[{"containerID":"x","ifname":"eth0"}],
  "delegates":[
    {"plugins":[{"type":"ptp"},{"type":"portmap","capabilities":{"portMappings":true,"cgroupPath":true}}]},
    {"name":"second","cniVersion":"0.4.0","type":"bridge","capabilities":{"portMappings":true,"cgroupPath":true}},
    {"name":"second","cniVersion":"1.0.0","type":"bridge"}]}`

func TestDelegates(t *testing.T) {
	call, err := cni.ParseCall(getenv(vars("ADD", "c")), []byte(threeNetworks))
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseDelegates(&multinet.Resolver{}, call)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range all {
		line := d.Network.Name + " " + d.Network.CNIVersion + " " + d.Request.IfName + " " + d.Request.Part
		for _, a := range d.Request.Args {
			line += " " + a[0]
		}
		for _, p := range d.Network.Plugins {
			var conf struct {
				RuntimeConfig map[string]any
				Args          map[string]any
			}
			if err := json.Unmarshal(p.Raw, &conf); err != nil {
				t.Fatal(err)
			}
			line += " [" + p.Type
			for _, key := range []string{"portMappings", "cgroupPath"} {
				if conf.RuntimeConfig[key] != nil {
					line += " " + key
				}
			}
			if conf.Args != nil {
				line += " args"
			}
			line += "]"
		}
		got = append(got, line)
	}
	want := []string{
		"outer 1.1.0 eth0 outer/eth0 IgnoreUnknown K8S_POD_NAME IP [ptp args] [portmap portMappings cgroupPath args]",
		"second 0.4.0 net1 outer/eth0 IgnoreUnknown K8S_POD_NAME [bridge cgroupPath]",
		"second 1.0.0 net2 outer/eth0 IgnoreUnknown K8S_POD_NAME [bridge]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func getenv(env []string) func(string) string {
	return func(name string) string {
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	}
}

func TestInvalidConfigurations(t *testing.T) {
	rec := &recorder{}
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	conf := func(s string) string { return `{"cniVersion":"1.0.0","name":"n","type":"weft-cni",` + s + `}` }
	for name, c := range map[string]struct {
		conf string
		ns   *netns.NS
		env  []string
		code model.Code
		says string
	}{
		"no delegates":      {`{"cniVersion":"1.0.0","name":"n","type":"weft-cni"}`, ns, vars("ADD", "c"), 7, "delegates"},
		"empty delegates":   {conf(`"delegates":[]`), ns, vars("ADD", "c"), 7, "delegates"},
		"delegates no list": {conf(`"delegates":7`), ns, vars("ADD", "c"), 6, "delegates"},
		"says list":         {conf(`"delegates":"x"`), ns, vars("ADD", "c"), 6, "delegates is string, want list"},
		"socket no string": {
			conf(`"socket":5,"delegates":[{"type":"ptp"}]`), ns, vars("ADD", "c"), 6, "socket is number, want string",
		},
		"itself": {
			conf(`"delegates":[{"plugins":[{"type":"weft-cni","delegates":[{"type":"ptp"}]}]}]`), ns, vars("ADD", "c"), 7,
			`delegates[0]: plugin "weft-cni"`,
		},
		"null":            {conf(`"delegates":[null]`), ns, vars("ADD", "c"), 6, "delegates[0]"},
		"empty":           {conf(`"delegates":[{}]`), ns, vars("ADD", "c"), 7, "delegates[0]"},
		"odd name":        {conf(`"delegates":[{"name":7,"type":"ptp"}]`), ns, vars("ADD", "c"), 6, "delegates[0]"},
		"no type":         {conf(`"delegates":[{"type":"ptp"},{"name":"m"}]`), ns, vars("ADD", "c"), 7, "delegates[1]"},
		"no name":         {conf(`"delegates":[{"type":"ptp"},{"type":"ptp"}]`), ns, vars("ADD", "c"), 7, "delegates[1]"},
		"future version":  {conf(`"delegates":[{"type":"ptp","cniVersion":"9.0.0"}]`), ns, vars("ADD", "c"), 1, "9.0.0"},
		"net1 twice":      {threeNetworks, ns, append([]string{"CNI_IFNAME=net1"}, vars("ADD", "c")...), 7, "net1"},
		"no JSON":         {`{"name":`, ns, vars("ADD", "c"), 6, ""},
		"no netns":        {conf(`"delegates":[{"type":"ptp"}]`), nil, vars("ADD", "c"), 8, "/run/netns/c"},
		"own netns":       {conf(`"delegates":[{"type":"ptp"}]`), own, vars("ADD", "c"), 8, "node itself"},
		"unset variables": {conf(`"delegates":[{"type":"ptp"}]`), ns, []string{"CNI_COMMAND=ADD"}, 4, "CNI_CONTAINERID"},
		"bad id":          {conf(`"delegates":[{"type":"ptp"}]`), ns, vars("ADD", "../x"), 4, "CNI_CONTAINERID"},
		"unknown verb":    {conf(`"delegates":[{"type":"ptp"}]`), ns, vars("BEND", "x"), 4, "BEND"},
		"DEL, no conf":    {conf(`"delegates":[]`), nil, vars("DEL", "never-added"), 7, "delegates"},
		"STATUS too old":  {conf(`"delegates":[{"type":"ptp"}]`), nil, vars("STATUS", ""), 1, "STATUS"},
	} {
		a := ask(t, socket, c.conf, c.ns, c.env...)
		if a.exit != 1 || a.fault.Code != int(c.code) || !strings.Contains(a.fault.Msg, c.says) {
			t.Errorf("%s: got %s, want code %d and %q", name, a.out, c.code, c.says)
		}
	}
	if calls := rec.seen(); len(calls) != 0 {
		t.Errorf("attach was asked %q", calls)
	}
}

func TestVerbsOfThreeNetworks(t *testing.T) {
	rec := &recorder{}
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	for _, c := range []struct {
		verb string
		want []string
	}{
		{"ADD", []string{"ADD outer eth0", "ADD second net1", "ADD second net2"}},
		{"CHECK", []string{"CHECK outer eth0", "CHECK second net1", "CHECK second net2"}},
		{"DEL", []string{"DEL second net2", "DEL second net1", "DEL outer eth0"}},
		{"GC", []string{"GC outer", "GC second"}},
		{"STATUS", []string{"STATUS outer", "STATUS second", "STATUS second"}},
	} {
		a := ask(t, socket, threeNetworks, ns, vars(c.verb, "c")...)
		if diff := cmp.Diff(c.want, rec.seen()); diff != "" || a.exit != 0 {
			t.Errorf("%s: %+v\n%s", c.verb, a, diff)
		}
	}
	want := []model.AttachmentKey{
		{Network: "outer", ContainerID: "x", IfName: "eth0"},
		{Network: "second", ContainerID: "x", IfName: "net1"},
		{Network: "second", ContainerID: "x", IfName: "net2"},
	}
	if diff := cmp.Diff(want, rec.valid); diff != "" {
		t.Errorf("valid attachments: %s", diff)
	}
}

// TestBadPrevResult: a DEL does not need prevResult, an ADD that has one must parse it.
func TestBadPrevResult(t *testing.T) {
	rec := &recorder{}
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	conf := strings.Replace(oneNetwork, "{", `{"prevResult":{"cniVersion":"1.0.0","ips":"x"},`, 1)
	if a := ask(t, socket, conf, ns, vars("DEL", "c")...); a.exit != 0 || len(rec.seen()) != 1 {
		t.Errorf("DEL: %+v", a)
	}
	if a := ask(t, socket, conf, ns, vars("ADD", "c")...); a.exit != 1 || a.fault.Code != int(model.CodeDecode) ||
		len(rec.seen()) != 0 {
		t.Errorf("ADD: %+v", a)
	}
}

// TestPrevResultOfDel: the prevResult of a DEL reaches the plugins of an attachment without a record. One with a record
// has its result there, and prevResult is not read.
func TestPrevResultOfDel(t *testing.T) {
	conf := strings.Replace(oneNetwork, "{", `{"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]},`, 1)
	for _, recorded := range []bool{false, true} {
		var prev *model.Result
		rec := &recorder{do: func(_ context.Context, _ string, job attach.Job) error { prev = job.Prev; return nil }}
		if recorded {
			rec.records = []attach.Record{{Request: model.Request{Network: "net", ContainerID: "c", IfName: "eth0"}}}
		}
		socket, ns := serve(t, rec), nettest.NS(t, "c")
		if a := ask(t, socket, conf, ns, vars("DEL", "c")...); a.exit != 0 || len(rec.seen()) != 1 {
			t.Fatalf("DEL: %+v", a)
		}
		if (prev == nil) != recorded || prev != nil && len(prev.IPs) != 1 {
			t.Errorf("recorded %t: prevResult %+v", recorded, prev)
		}
	}
}

// TestFailedNetworkIsNamed: the error names its network. The Attacher rolls back those before it, once.
func TestFailedNetworkIsNamed(t *testing.T) {
	rec := &recorder{do: func(ctx context.Context, verb string, job attach.Job) error {
		if verb == "ADD" && job.Request.IfName == "net2" {
			return errors.New("no room")
		}
		return ctx.Err()
	}}
	socket := serve(t, rec)
	a := ask(t, socket, threeNetworks, nettest.NS(t, "c"), vars("ADD", "c")...)
	want := []string{"ADD outer eth0", "ADD second net1", "ADD second net2"}
	if diff := cmp.Diff(want, rec.seen()); diff != "" ||
		!strings.Contains(a.fault.Msg, "delegates[2] (network second): no room") {
		t.Errorf("%+v\n%s", a, diff)
	}
}

func TestDelOfChangedConfiguration(t *testing.T) {
	record := func(network, ifname, part string) attach.Record {
		return attach.Record{
			Request: model.Request{Network: network, ContainerID: "c", IfName: ifname, Part: part},
			Network: model.Network{Name: network},
		}
	}
	rec := &recorder{records: []attach.Record{
		record("old", "eth0", "outer/eth0"), record("gone", "net1", "outer/eth0"), record("other", "eth1", "elsewhere/eth1"),
		record("else", "net2", "elsewhere/eth1"),
	}}
	socket := serve(t, rec)
	for name, conf := range map[string]string{
		"renamed": strings.ReplaceAll(oneNetwork, `"net"`, `"outer"`),
		"empty":   `{"cniVersion":"1.0.0","name":"outer","type":"weft-cni"}`,
		"broken":  `{"cniVersion"`,
	} {
		a := ask(t, socket, conf, nil, vars("DEL", "c")...)
		var got []string
		for _, c := range rec.seen() {
			if c != "DEL outer eth0" { // in the configuration
				got = append(got, c)
			}
		}
		if diff := cmp.Diff([]string{"DEL gone net1", "DEL old eth0"}, got); diff != "" || a.exit != 0 {
			t.Errorf("%s: %+v\n%s", name, a, diff)
		}
	}
}

func FuzzDelegates(f *testing.F) {
	f.Add([]byte(threeNetworks))
	f.Add([]byte(oneNetwork))
	f.Fuzz(func(t *testing.T, conf []byte) {
		call, err := cni.ParseCall(getenv(vars("ADD", "c")), conf)
		if err != nil {
			return
		}
		all, err := parseDelegates(&multinet.Resolver{}, call)
		if err == nil && (len(all) == 0 || all[0].Request.IfName != "eth0") {
			t.Errorf("%q: %+v", conf, all)
		}
		var fault *model.Error
		if err != nil && !errors.As(err, &fault) {
			t.Errorf("%q: an error without a code: %v", conf, err)
		}
	})
}
