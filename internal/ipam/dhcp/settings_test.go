// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

func object(keys string) string {
	return `{"cniVersion":"1.1.0","name":"net","type":"macvlan","ipam":{"type":"dhcp"` + keys + `}}`
}

func TestSettings(t *testing.T) {
	usually := []uint8{1, 121, 3, 33, 6, 15, 119, 26}
	for name, tc := range map[string]struct {
		keys string
		args [][2]string
		want Settings
	}{
		"nothing": {want: Settings{Socket: "/run/cni/dhcp.sock", IPv4: true, Request: usually}},
		"all": {
			keys: `,"daemonSocketPath":"/run/other.sock","priority":100,"ipv6":true,
				"provide":[{"option":"host-name","value":"a"},{"option":"61","fromArg":"ID"},{"option":"77","fromArg":"NONE"}],
				"request":[{"option":"routers"},{"option":"42"}]`,
			args: [][2]string{{"ID", "x"}, {"ID", "y"}},
			want: Settings{
				Socket: "/run/other.sock", IPv4: true, IPv6: true, Priority: 100,
				Request: []uint8{3, 42, 1, 121, 33, 6, 15, 119, 26},
				Provide: []Option{{12, []byte("a")}, {61, []byte("y")}},
			},
		},
		"keys in any case": {
			keys: `,"DaemonSocketPath":"/a","PRIORITY":1,"Provide":[{"Option":"60","VALUE":"v"}],"REQUEST":[{"SkipDefault":true}]`,
			want: Settings{Socket: "/a", IPv4: true, Priority: 1, Provide: []Option{{60, []byte("v")}}},
		},
		"names": {
			keys: `,"request":[{"skipDefault":true,"option":"dhcp-client-identifier"},{"option":"subnet-mask"},{"option":"routers"},
				{"option":"host-name"},{"option":"user-class"},{"option":"vendor-class-identifier"},{"option":"254"},{"option":"1"}]`,
			want: Settings{Socket: "/run/cni/dhcp.sock", IPv4: true, Request: []uint8{61, 1, 3, 12, 77, 60, 254}},
		},
		"only IPv6": {
			keys: `,"ipv4":false,"ipv6":true`, want: Settings{Socket: "/run/cni/dhcp.sock", IPv6: true, Request: usually},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(json.RawMessage(object(tc.keys)), tc.args)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Bad input is refused with field and value.
func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 256)
	const options = "a number from 1 to 254, dhcp-client-identifier, subnet-mask, routers, host-name, user-class or vendor-class-identifier"
	for _, tc := range []struct {
		conf string
		args [][2]string
		code model.Code
		want string
	}{
		{`[`, nil, 6, "configuration: : unexpected end of JSON input"},
		{`{}`, nil, 7, `configuration: ipam is missing (add "ipam": {"type": "dhcp"})`},
		{`{"ipam":7}`, nil, 6, "configuration: ipam is number, want object"},
		{object(`,"daemonSocketPath":7`), nil, 6, "configuration: ipam.daemonSocketPath is number, want string"},
		{
			object(`,"daemonSocketPath":"run/x"`), nil, 7,
			`ipam.daemonSocketPath "run/x" is not absolute (write the path from the root)`,
		},
		{object(`,"priority":"7"`), nil, 6, "configuration: ipam.priority is string, want int"},
		{object(`,"priority":-1`), nil, 7, "ipam.priority -1 is not between 0 and 4294967295 (0 leaves it to the kernel)"},
		{
			object(`,"priority":4294967296`), nil, 7,
			"ipam.priority 4294967296 is not between 0 and 4294967295 (0 leaves it to the kernel)",
		},
		{object(`,"ipv4":"no"`), nil, 6, "configuration: ipam.ipv4 is string, want bool"},
		{object(`,"ipv6":1`), nil, 6, "configuration: ipam.ipv6 is number, want bool"},
		{
			object(`,"ipv4":false`), nil, 7,
			`ipam.ipv4 is false and ipam.ipv6 is not true: there is nothing to ask for (set "ipv6": true, or leave ipv4 out)`,
		},
		{object(`,"provide":{}`), nil, 6, "configuration: ipam.provide is object, want list"},
		{object(`,"provide":[{"option":12}]`), nil, 6, "configuration: ipam.provide.option is number, want string"},
		{object(`,"provide":[{"value":"x"}]`), nil, 7, `ipam.provide[0].option "" is no DHCP option (` + options + `)`},
		{
			object(`,"provide":[{"option":"hostname","value":"x"}]`), nil, 7,
			`ipam.provide[0].option "hostname" is no DHCP option (` + options + `)`,
		},
		{object(`,"provide":[{"option":"0"}]`), nil, 7, `ipam.provide[0].option "0" is no DHCP option (` + options + `)`},
		{object(`,"provide":[{"option":"255"}]`), nil, 7, `ipam.provide[0].option "255" is no DHCP option (` + options + `)`},
		{object(`,"provide":[{"option":"256"}]`), nil, 7, `ipam.provide[0].option "256" is no DHCP option (` + options + `)`},
		{object(`,"provide":[{"option":"-1"}]`), nil, 7, `ipam.provide[0].option "-1" is no DHCP option (` + options + `)`},
		{
			object(`,"provide":[{"option":"12","value":"a"},{"option":"53","value":"x"}]`), nil, 7,
			`ipam.provide[1].option "53" is the protocol's own (remove it)`,
		},
		{
			object(`,"provide":[{"option":"50","value":"x"}]`), nil, 7,
			`ipam.provide[0].option "50" is the protocol's own (remove it)`,
		},
		{
			object(`,"provide":[{"option":"54","value":"x"}]`), nil, 7,
			`ipam.provide[0].option "54" is the protocol's own (remove it)`,
		},
		{
			object(`,"provide":[{"option":"55","value":"x"}]`), nil, 7,
			`ipam.provide[0].option "55" is what request is for (remove it)`,
		},
		{
			object(`,"provide":[{"option":"12","value":"` + long + `"}]`), nil, 7,
			`ipam.provide[0].value of option "12" has 256 bytes (an option holds 255 bytes)`,
		},
		{
			object(`,"provide":[{"option":"12","fromArg":"A"}]`),
			[][2]string{{"A", long}},
			4,
			`environment: CNI_ARGS A for ipam.provide[0].option "12" has 256 bytes (an option holds 255 bytes)`,
		},
		{object(`,"request":"routers"`), nil, 6, "configuration: ipam.request is string, want list"},
		{
			object(`,"request":[{"option":"router"}]`), nil, 7,
			`ipam.request[0].option "router" is no DHCP option (` + options + `)`,
		},
		{
			object(`,"request":[{"skipDefault":"yes"}]`), nil, 6, "configuration: ipam.request.skipDefault is string, want bool",
		},
	} {
		_, err := Read(json.RawMessage(tc.conf), tc.args)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code {
			t.Errorf("%.90s: error %v, want code %d", tc.conf, err, tc.code)
			continue
		}
		got := f.Error()
		if got != tc.want {
			t.Errorf("%.90s:\n got  %s\n want %s", tc.conf, got, tc.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for keys, want := range map[string]string{
		``:                             "",
		`,"provide":[{"option":"12"}]`: "ipam.provide[0]",
		`,"ipv4":false,"ipv6":true,"request":[{"option":"3"}]`:             "ipam.request",
		`,"ipv4":false,"ipv6":true,"provide":[{"option":"3","value":"x"}]`: "ipam.provide",
		`,"request":[{}]`: "ipam.request[0]",
		`,"request":[{"skipDefault":true},{"option":"3"}]`: "ipam.request",
	} {
		var fields []string
		for _, d := range New(nil).Warnings(json.RawMessage(object(keys))) {
			fields = append(fields, d.Field)
			if d.Msg == "" || d.Hint == "" {
				t.Errorf("%s: %+v", keys, d)
			}
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("%s: doubts about %q, want %q", keys, got, want)
		}
	}
}

// Every configuration is read or refused with a code.
func FuzzRead(f *testing.F) {
	for _, keys := range []string{
		``, `,"priority":7`, `,"provide":[{"option":"12","fromArg":"A"}]`, `,"request":[{"skipDefault":true}]`,
		`,"ipv6":true`,
	} {
		f.Add(object(keys), "A=b")
	}
	f.Fuzz(func(t *testing.T, conf, arg string) {
		name, value, _ := strings.Cut(arg, "=")
		s, err := Read(json.RawMessage(conf), [][2]string{{name, value}})
		var fault *model.Error
		if err != nil {
			if !errors.As(err, &fault) || fault.Code == 0 {
				t.Errorf("error without a code: %v", err)
			}
			return
		}
		if !s.IPv4 && !s.IPv6 || s.Socket == "" || s.Priority < 0 {
			t.Errorf("%+v", s)
		}
		for _, o := range s.Provide {
			if o.Code == 0 || o.Code == 255 || len(o.Value) > 255 {
				t.Errorf("option %d of %d bytes", o.Code, len(o.Value))
			}
		}
		if fmt.Sprint(New(nil).Validate(json.RawMessage(conf))) != "<nil>" && name == "" {
			t.Error("Validate refuses what Read reads")
		}
	})
}
