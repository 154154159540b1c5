// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Bad input is refused with field, value and a hint.
func TestBadInput(t *testing.T) {
	for _, tc := range []struct {
		conf string
		args [][2]string
		code model.Code
		want string
	}{
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":{}}}`, nil, 6,
			"configuration: ipam.addresses is object, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":["x"]}}`, nil, 6,
			"configuration: ipam.addresses is string, want object",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{"address":5}]}}`, nil, 6,
			"configuration: ipam.addresses.address is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{}]}}`, nil, 7,
			`ipam.addresses[0].address "": netip.ParsePrefix(""): no '/' (an address with its prefix length, for example 10.1.0.5/24)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{"address":"10.0.0.1"}]}}`, nil, 7,
			`ipam.addresses[0].address "10.0.0.1": netip.ParsePrefix("10.0.0.1"): no '/' (an address with its prefix length, for example 10.1.0.5/24)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{"address":"::ffff:10.0.0.1/120"}]}}`, nil, 7,
			`ipam.addresses[0].address "::ffff:10.0.0.1/120" is an IPv4 address in IPv6 form (write it as IPv4)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{"address":"10.0.0.1/24","gateway":7}]}}`, nil, 6,
			"configuration: ipam.addresses.gateway is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{"address":"10.0.0.1/24","gateway":"x"}]}}`, nil, 7,
			`ipam.addresses[0].gateway "x": ParseAddr("x"): unable to parse IP`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","addresses":[{"address":"10.0.0.1/24","gateway":"fd00::1"}]}}`, nil,
			7, "ipam.addresses[0]: address 10.0.0.1/24 and gateway fd00::1 are of different families",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":{}}}`, nil, 6,
			"configuration: ipam.routes is object, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{}]}}`, nil, 7,
			"ipam.routes[0].dst is missing (a prefix, for example 10.2.0.0/16)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"far"}]}}`, nil, 7,
			`ipam.routes[0].dst "far" is no prefix (a prefix, for example 10.2.0.0/16)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":7}]}}`, nil, 6,
			"ipam.routes[0].dst is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.1/8"}]}}`, nil, 7,
			"ipam.routes[0].dst 10.0.0.1/8 has host bits set (write 10.0.0.0/8)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","gw":"near"}]}}`, nil, 7,
			`ipam.routes[0].gw "near" is no address (an address, for example 10.1.0.1)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","gw":"fd00::1"}]}}`, nil, 7,
			"ipam.routes[0]: dst 10.0.0.0/8 and gw fd00::1 are of different families (a route's gateway has the family of its destination)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","mtu":"x"}]}}`, nil, 6,
			"ipam.routes[0].mtu is string, want int",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","mtu":65536}]}}`, nil, 7,
			"ipam.routes[0].mtu 65536 is not between 0 and 65535 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","advmss":-1}]}}`, nil, 7,
			"ipam.routes[0].advmss -1 is not between 0 and 65535 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","priority":-1}]}}`, nil, 7,
			"ipam.routes[0].priority -1 is not between 0 and 4294967295 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","table":-1}]}}`, nil, 7,
			"ipam.routes[0].table -1 is not between 0 and 4294967295 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","routes":[{"dst":"10.0.0.0/8","scope":256}]}}`, nil, 7,
			"ipam.routes[0].scope 256 is not between 0 and 255 (leave it out for the kernel's own)",
		},
		{`{"cniVersion":"1.0.0","ipam":{"type":"static","dns":[]}}`, nil, 6, "configuration: ipam.dns is array, want object"},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","dns":{"nameservers":"x"}}}`, nil, 6,
			"configuration: ipam.dns.nameservers is string, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","dns":{"domain":5}}}`, nil, 6,
			"configuration: ipam.dns.domain is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","dns":{"search":"x"}}}`, nil, 6,
			"configuration: ipam.dns.search is string, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static","dns":{"options":"x"}}}`, nil, 6,
			"configuration: ipam.dns.options is string, want list",
		},
		{`{}`, nil, 7, "configuration: ipam is missing"},
		{`{"ipam":"x"}`, nil, 6, "configuration: ipam is string, want object"},
		{`{"runtimeConfig":{"ips":"x"},"ipam":{}}`, nil, 6, "configuration: runtimeConfig.ips is string, want list"},
		{
			`{"runtimeConfig":{"ips":["x"]},"ipam":{}}`, nil, 7,
			`runtimeConfig.ips "x": netip.ParsePrefix("x"): no '/' (an address with its prefix length, for example 10.1.0.5/24)`,
		},
		{
			`{"args":{"cni":{"ips":["10.0.0.1"]}},"ipam":{}}`, nil, 7,
			`args.cni.ips "10.0.0.1": netip.ParsePrefix("10.0.0.1"): no '/' (an address with its prefix length, for example 10.1.0.5/24)`,
		},
		{`{"args":{"cni":{"ips":5}},"ipam":{}}`, nil, 6, "configuration: args.cni.ips is number, want list"},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static"}}`,
			[][2]string{{"IP", "ten"}},
			4,
			`environment: CNI_ARGS IP "ten": netip.ParsePrefix("ten"): no '/' (an address with its prefix length, for example 10.1.0.5/24)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static"}}`,
			[][2]string{{"IP", "10.9.0.1"}},
			4,
			`environment: CNI_ARGS IP "10.9.0.1": netip.ParsePrefix("10.9.0.1"): no '/' (an address with its prefix length, for example 10.1.0.5/24)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static"}}`,
			[][2]string{{"GATEWAY", "x"}},
			4,
			`environment: CNI_ARGS GATEWAY "x": ParseAddr("x"): unable to parse IP`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"static"}}`,
			[][2]string{{"FOO", "1"}},
			4,
			`environment: CNI_ARGS: unknown keys "FOO" (add IgnoreUnknown=1 to have them ignored)`,
		},
		{
			`{"cniVersion":"0.2.0","ipam":{"addresses":[{"address":"10.0.0.1/24"},{"address":"10.0.0.2/24"}]}}`, nil, 7,
			`cniVersion "0.2.0" does not support more than one address per family (2 IPv4, 0 IPv6) (use cniVersion 0.3.0 or newer)`,
		},
	} {
		req := ipam.Request{Conf: json.RawMessage(tc.conf), Network: "n", ContainerID: "c", IfName: "eth0", Args: tc.args}
		_, err := New().Add(context.Background(), req)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || f.Error() != tc.want {
			t.Errorf("%s %v:\n got  %v\n want %d %s", tc.conf, tc.args, err, tc.code, tc.want)
		}
	}
}

// Keys are read in any case, as runtimes write them.
func TestKeysInAnyCase(t *testing.T) {
	conf := `{"CNIVERSION":"1.0.0","IPAM":{"Addresses":[{"ADDRESS":"10.1.0.5/24","Gateway":"10.1.0.1"}],"DNS":{"NameServers":["10.0.0.53"]}},
		"Args":{"CNI":{"IPs":["10.3.0.1/24"]}}}`
	r, err := New().Add(context.Background(), ipam.Request{Conf: json.RawMessage(conf)})
	if err != nil || show(r) != "10.3.0.1/24" || len(r.DNS.Nameservers) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
