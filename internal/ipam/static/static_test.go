// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

const two = `{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd00::5/64"}],
	"routes":[{"dst":"0.0.0.0/0","mtu":1400}],"dns":{"nameservers":["10.0.0.53"],"search":["a"]}}}`

func show(r model.Result) string {
	var out []string
	for _, ip := range r.IPs {
		s := ip.Address.String()
		if ip.Gateway.IsValid() {
			s += " via " + ip.Gateway.String()
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func with(extra string) string { return strings.Replace(two, "{", "{"+extra+",", 1) }

func TestAdd(t *testing.T) {
	for name, tc := range map[string]struct {
		conf string
		args [][2]string
		want string
	}{
		"configuration": {conf: two, want: "10.1.0.5/24 via 10.1.0.1, fd00::5/64"},
		"CNI_ARGS adds": {
			conf: two, args: [][2]string{{"IP", "10.2.0.1/24, fd01::1/64"}, {"GATEWAY", "10.2.0.254,fd00::1"}},
			want: "10.1.0.5/24 via 10.1.0.1, fd00::5/64 via fd00::1, 10.2.0.1/24 via 10.2.0.254, fd01::1/64",
		},
		"args replaces": {
			conf: with(`"args":{"cni":{"ips":["10.3.0.1/24"]}}`), args: [][2]string{{"IP", "10.2.0.1/24"}}, want: "10.3.0.1/24",
		},
		"runtimeConfig replaces": {
			conf: with(`"args":{"cni":{"ips":["10.3.0.1/24"]}},"runtimeConfig":{"ips":["10.4.0.1/24"]}`), want: "10.4.0.1/24",
		},
		"nothing": {conf: `{"cniVersion":"1.0.0","ipam":{"type":"static"}}`, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := ipam.Request{Conf: json.RawMessage(tc.conf), Args: tc.args}
			r, err := New().Add(context.Background(), req)
			if err != nil || show(r) != tc.want {
				t.Fatalf("got %s %v, want %s", show(r), err, tc.want)
			}
			if err := New().Check(context.Background(), req, r); err != nil {
				t.Errorf("CHECK: %v", err)
			}
		})
	}
	r, err := New().Add(context.Background(), ipam.Request{Conf: json.RawMessage(two)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(model.DNS{Nameservers: []string{"10.0.0.53"}, Search: []string{"a"}}, r.DNS); diff != "" {
		t.Error(diff)
	}
	if len(r.Routes) != 1 || r.Routes[0].MTU != 1400 || r.Routes[0].Dst != netip.MustParsePrefix("0.0.0.0/0") {
		t.Errorf("routes %+v", r.Routes)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		conf string
		arg  [2]string
		want string
		code model.Code
	}{
		{`{}`, [2]string{}, "ipam is missing", 7},
		{`{"ipam":{"addresses":[{"address":"10.0.0.1"}]}}`, [2]string{}, `ipam.addresses[0].address "10.0.0.1"`, 7},
		{`{"ipam":{"addresses":[{"address":"10.0.0.1/24","gateway":"x"}]}}`, [2]string{}, `ipam.addresses[0].gateway "x"`, 7},
		{`{"ipam":{"addresses":[{"address":"10.0.0.1/24","gateway":"fd00::1"}]}}`, [2]string{}, "different families", 7},
		{`{"ipam":{"addresses":"x"}}`, [2]string{}, "ipam.addresses is string", 6},
		{`{"ipam":{"routes":[{"dst":"10.0.0.1/8"}]}}`, [2]string{}, "host bits", 7},
		{
			`{"cniVersion":"0.2.0","ipam":{"addresses":[{"address":"10.0.0.1/24"},{"address":"10.0.0.2/24"}]}}`,
			[2]string{},
			"more than one address per family", 7,
		},
		{two, [2]string{"IP", "10.0.0.1"}, `CNI_ARGS IP "10.0.0.1"`, 4},
		{two, [2]string{"GATEWAY", "x"}, `CNI_ARGS GATEWAY "x"`, 4},
		{with(`"runtimeConfig":{"ips":["x"]}`), [2]string{}, `runtimeConfig.ips "x"`, 7},
	} {
		req := ipam.Request{Conf: json.RawMessage(tc.conf)}
		if tc.arg[0] != "" {
			req.Args = [][2]string{tc.arg}
		}
		_, err := New().Add(context.Background(), req)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || !strings.Contains(f.Msg, tc.want) {
			t.Errorf("%s %v: error %v, want code %d with %q", tc.conf, tc.arg, err, tc.code, tc.want)
		}
		if tc.arg[0] == "" && New().Validate(req.Conf) == nil {
			t.Errorf("%s is valid", tc.conf)
		}
	}
}

func TestCheckFindsDifferences(t *testing.T) {
	req := ipam.Request{Conf: json.RawMessage(two)}
	r, err := New().Add(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	r.IPs[0].Gateway = netip.MustParseAddr("10.1.0.9")
	if err := New().Check(context.Background(), req, r); err == nil || !strings.Contains(err.Error(), "10.1.0.9") {
		t.Errorf("another gateway: %v", err)
	}
	r.IPs = r.IPs[1:]
	if err := New().Check(context.Background(), req, r); err == nil || !strings.Contains(err.Error(), "10.1.0.5/24") {
		t.Errorf("a missing address: %v", err)
	}
}

func FuzzAdd(f *testing.F) {
	f.Add(two, "10.2.0.1/24", "10.2.0.254")
	f.Add(`{"ipam":{"addresses":[{"address":"::ffff:1.2.3.4/120"}]}}`, "", "::1")
	f.Fuzz(func(t *testing.T, conf, ip, gateway string) {
		r, err := New().Add(context.Background(), ipam.Request{
			Conf: json.RawMessage(conf), Args: [][2]string{{"IP", ip}, {"GATEWAY", gateway}},
		})
		for _, got := range r.IPs {
			if err == nil && (!got.Address.IsValid() || got.Address.Addr().Is4In6()) {
				t.Fatalf("address %v", got)
			}
		}
	})
}
