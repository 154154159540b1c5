// SPDX-License-Identifier: Apache-2.0

package poolconf

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

func TestBadInput(t *testing.T) {
	whereabouts := func(rest string) string { return `{"cniVersion":"1.0.0","ipam":{"type":"whereabouts",` + rest + `}}` }
	for _, c := range []struct {
		conf string
		code model.Code
		want string
	}{
		{`{}`, 7, `configuration: ipam is missing (add "ipam": {"type": "whereabouts", "range": "10.1.0.0/16"})`},
		{`{"ipam":[]}`, 6, `configuration: ipam is array, want object`},
		{whereabouts(`"range":7`), 6, `configuration: ipam.range is number, want string`},
		{whereabouts(`"exclude":[]`), 7, `ipam.range is missing (add "range": "10.1.0.0/16")`},
		{`{"ipam":{"type":"weft"}}`, 7, `ipam.range is missing (add "range": "10.1.0.0/16" or "pool": "NAME")`},
		{
			`{"ipam":{"type":"weft","pool":"A b"}}`, 7,
			`ipam.pool "A b" cannot be used (lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them)`,
		},
		{
			whereabouts(`"range":"10.1.0.0"`), 7,
			`ipam.range "10.1.0.0" is no range (for example "10.1.0.0/16" or "10.1.0.5-10.1.0.9/16")`,
		},
		{
			whereabouts(`"range":"::ffff:10.1.0.0/112"`), 7,
			`ipam.range "::ffff:10.1.0.0/112" is no range (for example "10.1.0.0/16" or "10.1.0.5-10.1.0.9/16")`,
		},
		{
			whereabouts(`"range":"10.1.0.9-10.1.0.5/24"`), 7,
			`ipam.range "10.1.0.9-10.1.0.5/24": 10.1.0.9 is not between the beginning of 10.1.0.0/24 and 10.1.0.5 (begin with the lower address, both of one subnet)`,
		},
		{
			whereabouts(`"range":"10.1.0.0/24","range_start":"10.2.0.1"`), 7,
			`ipam.range_start 10.2.0.1 is not in range 10.1.0.0/24 (leave it out, or use an address of the range)`,
		},
		{
			whereabouts(`"range":"10.1.0.0/24","range_start":"10.1.0.9","range_end":"10.1.0.8"`), 7,
			`ipam.range_end 10.1.0.8 is before range_start 10.1.0.9 (exchange them)`,
		},
		{
			whereabouts(`"range":"10.1.0.0/24","exclude":["x"]`), 7,
			`ipam.exclude[0] "x" is neither a prefix nor an address (a prefix or an address, for example 10.1.0.0/28)`,
		},
		{
			whereabouts(`"ipRanges":[{"range":"10.1.0.0/24","exclude":["10.1.0.0/16"]}]`), 7,
			`ipam.ipRanges[0].range "10.1.0.0/24" has no allocatable address (widen the range, or exclude less)`,
		},
		{
			whereabouts(`"range":"10.1.0.0/24","gateway":"g"`), 7,
			`ipam.gateway "g" is no address (an address, for example 10.1.0.5)`,
		},
		{
			whereabouts(`"range":"10.1.0.0/24","addresses":[{"address":"10.1.0.5"}]`), 7,
			`ipam.addresses[0].address "10.1.0.5" is no address with a prefix length (an address with its prefix length, for example 10.1.0.5/24)`,
		},
		{
			whereabouts(`"range":"10.1.0.0/24","addresses":[{"address":"10.1.0.5/24","gateway":"fd00::1"}]`), 7,
			`ipam.addresses[0]: address 10.1.0.5/24 and gateway fd00::1 are of different families (write one of the address's family)`,
		},
		{
			whereabouts(`"range":"10.1.0.0/24","routes":[{"dst":"10.1.0.1/8"}]`), 7,
			`ipam.routes[0].dst 10.1.0.1/8 has host bits set (write 10.0.0.0/8)`,
		},
		{
			`{"cniVersion":"0.2.0","ipam":{"type":"whereabouts","ipRanges":[{"range":"10.1.0.0/24"},{"range":"10.2.0.0/24"}]}}`,
			7,
			`cniVersion "0.2.0" does not support more than one address per family (2 IPv4, 0 IPv6) (use cniVersion 0.3.0 or newer)`,
		},
	} {
		_, err := NewReader(nil).Settings(ipam.Request{Conf: json.RawMessage(c.conf)})
		var f *model.Error
		if !errors.As(err, &f) || f.Code != c.code || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant code %d: %s", c.conf, err, c.code, c.want)
		}
	}
}

func TestBadRequests(t *testing.T) {
	cr := NewReader(nil)
	conf := func(rest string) string {
		return `{"ipam":{"type":"whereabouts","range":"10.1.0.0/24"},` + rest + `}`
	}
	for _, c := range []struct {
		conf string
		args [][2]string
		want string
	}{
		{
			conf(`"args":{}`), [][2]string{
				{"IP", "x"},
			}, `environment: CNI_ARGS IP "x" is no address (an address, for example 10.1.0.5)`,
		},
		{
			conf(`"args":{}`), [][2]string{
				{"FOO", "x"},
			}, `environment: CNI_ARGS: unknown keys "FOO" (add IgnoreUnknown=1 to have them ignored)`,
		},
		{
			conf(`"args":{}`),
			[][2]string{{"GATEWAY", "x"}},
			`environment: CNI_ARGS GATEWAY "x" is no address (an address, for example 10.1.0.1)`,
		},
		{
			conf(`"args":{"cni":{"ips":["10.1.0"]}}`), nil,
			`args.cni.ips "10.1.0" is no address (an address, for example 10.1.0.5)`,
		},
		{
			conf(`"runtimeConfig":{"ips":["a/24"]}`), nil,
			`runtimeConfig.ips "a/24" is no address (an address, for example 10.1.0.5)`,
		},
		{
			conf(`"runtimeConfig":{"ips":["10.1.0.0/24"]}`), nil,
			`ips: address 10.1.0.0 is not among the allocatable addresses: 10.1.0.1-10.1.0.254 (choose one of these)`,
		},
		{
			conf(`"runtimeConfig":{"ips":["10.1.0.4/24","10.1.0.5/24"]}`), nil,
			`ips: address 10.1.0.5 is in no range that is left for this attachment: 10.1.0.0/24 (ask for one address of each range at most)`,
		},
		{
			conf(`"args":{"cni":{"ipam-claim-reference":"c"}}`), nil,
			`ipam-claim-reference "c": CNI_ARGS does not say the pod's namespace (K8S_POD_NAMESPACE)`,
		},
		{
			conf(`"args":{"cni":{"ipam-claim-reference":"c","ips":["10.1.0.4"]}}`),
			[][2]string{{"K8S_POD_NAMESPACE", "n"}},
			`ipam-claim-reference "c" and ips 10.1.0.4: only one of them can request the address (leave ips out: the claim has the addresses)`,
		},
	} {
		s, err := cr.Settings(ipam.Request{Conf: json.RawMessage(c.conf), Args: c.args})
		if err == nil {
			err = s.CheckClaim()
		}
		if err == nil {
			err = s.Assign()
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%s %v:\n got %v\nwant %s", c.conf, c.args, err, c.want)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add(`{"cniVersion":"1.0.0","ipam":{"type":"whereabouts","range":"192.168.2.225/28","range_start":"192.168.2.226",
"range_end":"192.168.2.238","exclude":["192.168.2.229/30","192.168.2.236"],"ipRanges":[{"range":"10.7.0.10-10.7.0.20/16"}],
"gateway":"192.168.2.238","addresses":[{"address":"172.16.0.9/24"}],"enable_overlapping_ranges":true}}`, "192.168.2.230")
	f.Add(`{"ipam":{"type":"weft","pool":"a"}}`, "")
	cr := NewReader(nil)
	f.Fuzz(func(t *testing.T, conf, ip string) {
		s, err := cr.Settings(ipam.Request{Conf: json.RawMessage(conf), Args: [][2]string{{"IP", ip}}})
		if err != nil {
			return
		}
		for _, w := range s.Wants {
			for _, s := range w.Spans {
				if s.To.Less(s.From) || !w.Network.Contains(s.From) || !w.Network.Contains(s.To) {
					t.Errorf("%s: span %s of %s", conf, s, w.Network)
				}
			}
		}
	})
}
