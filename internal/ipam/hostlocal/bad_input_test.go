// SPDX-License-Identifier: Apache-2.0

package hostlocal

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
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local"}}`, nil, 7,
			`ipam: no ranges (add "subnet" or "ranges": [[{"subnet": …}]])`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":17}}`, nil, 6,
			"configuration: ipam.subnet is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"ten"}}`, nil, 7,
			`ipam.subnet "ten": netip.ParsePrefix("ten"): no '/' (for example "10.1.0.0/24")`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.5/24"}}`, nil, 7,
			"ipam.subnet 10.1.0.5/24 has host bits set (write 10.1.0.0/24)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/31"}}`, nil, 7,
			"ipam.subnet 10.1.0.0/31 is too small to allocate from (use /30 or larger)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","rangeStart":1}}`, nil, 6,
			"configuration: ipam.rangeStart is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","rangeStart":"a"}}`, nil, 7,
			`ipam.rangeStart "a": ParseAddr("a"): unable to parse IP (an address, for example 10.1.0.5)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","rangeStart":"10.2.0.1"}}`, nil, 7,
			"ipam.rangeStart 10.2.0.1 is not in subnet 10.1.0.0/24 (leave it out, or use an address of the subnet)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","rangeEnd":"b"}}`, nil, 7,
			`ipam.rangeEnd "b": ParseAddr("b"): unable to parse IP (an address, for example 10.1.0.5)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","rangeEnd":"10.2.0.1"}}`, nil, 7,
			"ipam.rangeEnd 10.2.0.1 is not between rangeStart 10.1.0.1 and the end of subnet 10.1.0.0/24 (leave it out, or choose one there)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","rangeStart":"10.1.0.9","rangeEnd":"10.1.0.3"}}`, nil, 7, "ipam.rangeEnd 10.1.0.3 is not between rangeStart 10.1.0.9 and the end of subnet 10.1.0.0/24 (leave it out, or choose one there)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","gateway":"c"}}`, nil, 7,
			`ipam.gateway "c": ParseAddr("c"): unable to parse IP (an address, for example 10.1.0.5)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","gateway":"fd00::1"}}`, nil, 7,
			"ipam.gateway fd00::1 is not of the family of subnet 10.1.0.0/24 (leave it out, or use an address of the subnet)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":{}}}`, nil, 6,
			"configuration: ipam.ranges is object, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":[{}]}}`, nil, 6,
			"configuration: ipam.ranges is object, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":[[]]}}`, nil, 7,
			`ipam.ranges[0]: empty range set (remove it, or add {"subnet": …})`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":[[{}]]}}`, nil, 7,
			`ipam.ranges[0][0].subnet is missing (for example "10.1.0.0/24")`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"fd00::/64"}]]}}`,
			nil, 7,
			"ipam.ranges[0]: 10.1.0.1-10.1.0.254 and fd00::1-fd00::ffff:ffff:ffff:ffff mix address families (a range set has one family)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"10.1.0.0/25"}]]}}`,
			nil, 7,
			"ipam.ranges[0]: ranges 10.1.0.1-10.1.0.254 and 10.1.0.1-10.1.0.126 overlap (ranges must not overlap: move or shorten one of the two)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.1.0.0/16"}]]}}`, nil, 7, "ipam.ranges[1] 10.1.0.1-10.1.255.254 overlaps with ipam.ranges[0] 10.1.0.1-10.1.0.254 (ranges must not overlap: move or shorten one of the two)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":{}}}`, nil, 6,
			"configuration: ipam.routes is object, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"far"}]}}`, nil, 7,
			`ipam.routes[0].dst "far" is no prefix (a prefix, for example 10.2.0.0/16)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"gw":"10.1.0.1"}]}}`, nil, 7,
			"ipam.routes[0].dst is missing (a prefix, for example 10.2.0.0/16)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.1/8"}]}}`, nil, 7,
			"ipam.routes[0].dst 10.0.0.1/8 has host bits set (write 10.0.0.0/8)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","gw":"near"}]}}`, nil, 7, `ipam.routes[0].gw "near" is no address (an address, for example 10.1.0.1)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","gw":"fd00::1"}]}}`, nil, 7, "ipam.routes[0]: dst 10.0.0.0/8 and gw fd00::1 are of different families (a route's gateway has the family of its destination)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","mtu":"x"}]}}`, nil, 6, "ipam.routes[0].mtu is string, want int",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","priority":-1}]}}`, nil, 7, "ipam.routes[0].priority -1 is not between 0 and 4294967295 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","table":-1}]}}`, nil, 7, "ipam.routes[0].table -1 is not between 0 and 4294967295 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","scope":300}]}}`, nil, 7, "ipam.routes[0].scope 300 is not between 0 and 255 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","mtu":-5}]}}`, nil, 7, "ipam.routes[0].mtu -5 is not between 0 and 65535 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","advmss":-5}]}}`, nil, 7, "ipam.routes[0].advmss -5 is not between 0 and 65535 (leave it out for the kernel's own)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":5}}`, nil, 6,
			"configuration: ipam.dataDir is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","resolvConf":5}}`, nil, 6,
			"configuration: ipam.resolvConf is number, want string",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","resolvConf":"/none"}}`, nil, 7,
			`ipam.resolvConf "/none": open /none: no such file or directory`,
		},
		{`{}`, nil, 7, `configuration: ipam is missing (add "ipam": {"type": "host-local", "ranges": [[{"subnet": …}]]})`},
		{`{"ipam":"x"}`, nil, 6, "configuration: ipam is string, want object"},
		{
			`{"runtimeConfig":{"ipRanges":5},"ipam":{"subnet":"10.1.0.0/24"}}`, nil, 6,
			"configuration: runtimeConfig.ipRanges is number, want list",
		},
		{
			`{"runtimeConfig":{"ipRanges":[[{"subnet":"x"}]]},"ipam":{}}`, nil, 7,
			`runtimeConfig.ipRanges[0][0].subnet "x": netip.ParsePrefix("x"): no '/' (for example "10.1.0.0/24")`,
		},
		{
			`{"runtimeConfig":{"ips":"x"},"ipam":{"subnet":"10.1.0.0/24"}}`, nil, 6,
			"configuration: runtimeConfig.ips is string, want list",
		},
		{
			`{"runtimeConfig":{"ips":["x"]},"ipam":{"subnet":"10.1.0.0/24"}}`, nil, 7,
			`runtimeConfig.ips "x": ParseAddr("x"): unable to parse IP (an address, for example 10.1.0.5)`,
		},
		{
			`{"args":{"cni":{"ips":["x"]}},"ipam":{"subnet":"10.1.0.0/24"}}`, nil, 7,
			`args.cni.ips "x": ParseAddr("x"): unable to parse IP (an address, for example 10.1.0.5)`,
		},
		{
			`{"args":{"cni":{"ips":5}},"ipam":{"subnet":"10.1.0.0/24"}}`, nil, 6,
			"configuration: args.cni.ips is number, want list",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
			[][2]string{{"IP", "ten"}},
			4,
			`environment: CNI_ARGS IP "ten": ParseAddr("ten"): unable to parse IP (an address, for example 10.1.0.5)`,
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
			[][2]string{{"IP", "10.9.0.1"}},
			7,
			"ips: 10.9.0.1: in no range set that is still free for this attachment (ask for one address of each range set at most)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
			[][2]string{{"IP", "10.1.0.1"}},
			7,
			"requested address 10.1.0.1 is the gateway, the network or the broadcast address of 10.1.0.0/24 (ask for another address)",
		},
		{
			`{"cniVersion":"1.0.0","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
			[][2]string{{"FOO", "1"}},
			4,
			`environment: CNI_ARGS: unknown keys "FOO" (add IgnoreUnknown=1 to have them ignored)`,
		},
		{
			`{"runtimeConfig":{"ips":["10.1.0.8","10.1.0.9"]},"ipam":{"subnet":"10.1.0.0/24"}}`, nil, 7,
			"ips: 10.1.0.9: in no range set that is still free for this attachment (ask for one address of each range set at most)",
		},
		{
			`{"cniVersion":"0.2.0","ipam":{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.2.0.0/24"}]]}}`, nil, 7,
			`cniVersion "0.2.0" does not support more than one address per family (2 IPv4, 0 IPv6) (use cniVersion 0.3.0 or newer)`,
		},
	} {
		req := ipam.Request{Conf: json.RawMessage(tc.conf), Network: "n", ContainerID: "c", IfName: "eth0", Args: tc.args}
		_, err := New(Config{DataDir: t.TempDir()}).Add(context.Background(), req)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || f.Error() != tc.want {
			t.Errorf("%s %v:\n got  %v\n want %d %s", tc.conf, tc.args, err, tc.code, tc.want)
		}
	}
}

// Keys are read in any case, as runtimes write them.
func TestKeysInAnyCase(t *testing.T) {
	conf := `{"CNIVersion":"1.0.0","RUNTIMECONFIG":{"IPRANGES":[[{"SUBNET":"10.2.0.0/24","rangestart":"10.2.0.9"}]]},
		"IPAM":{"Subnet":"10.1.0.0/24","RangeStart":"10.1.0.7","ROUTES":[{"DST":"10.9.0.0/16","Priority":5}]}}`
	r, err := New(Config{
		DataDir: t.TempDir(),
	}).Add(context.Background(), ipam.Request{Conf: json.RawMessage(conf), Network: "n", ContainerID: "c", IfName: "eth0"})
	if err != nil || len(r.IPs) != 2 || r.IPs[0].Address.String() != "10.2.0.9/24" ||
		r.IPs[1].Address.String() != "10.1.0.7/24" ||
		len(r.Routes) != 1 || r.Routes[0].Priority != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}
