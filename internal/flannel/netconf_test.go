// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// TestNetConf: every key and every default of facts.
func TestNetConf(t *testing.T) {
	c, warnings, err := flannel.ParseNetConf(
		[]byte(`{"Network": "10.5.0.0/16", "IPv6Network": "fc00::/48", "EnableIPv6": true, "EnableNFTables": true,
		"SubnetLen": 26, "SubnetMin": "10.5.10.0", "SubnetMax": "10.5.20.0", "IPv6SubnetLen": 64, "IPv6SubnetMin": "fc00:0:0:1::", "IPv6SubnetMax": "fc00:0:0:5::",
		"Backend": {"Type": "vxlan", "VNI": 7, "Port": 4789, "MTU": 1500, "GBP": true, "Learning": true, "DirectRouting": true, "MacPrefix": "0E-2A"}}`))
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	want := flannel.NetConf{
		Network: netip.MustParsePrefix("10.5.0.0/16"), IPv6Network: netip.MustParsePrefix("fc00::/48"), EnableIPv4: true,
		EnableIPv6: true, EnableNFTables: true,
		SubnetLen: 26, SubnetMin: netip.MustParseAddr("10.5.10.0"), SubnetMax: netip.MustParseAddr("10.5.20.0"),
		IPv6SubnetLen: 64,
		IPv6SubnetMin: netip.MustParseAddr("fc00:0:0:1::"), IPv6SubnetMax: netip.MustParseAddr("fc00:0:0:5::"),
		Backend: flannel.Backend{
			Type: "vxlan", VNI: 7, Port: 4789, MTU: 1500, GBP: true, Learning: true, DirectRouting: true, MacPrefix: "0E-2A",
		},
	}
	if d := cmp.Diff(want, c, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	for backend, want := range map[string]flannel.Backend{
		`{"type": "vxlan"}`:     {Type: "vxlan", VNI: 1},
		`{"Type": "udp"}`:       {Type: "udp", Port: 8285},
		`{"Type": "host-gw"}`:   {Type: "host-gw"},
		`{"Type": "wireguard"}`: {Type: "wireguard", ListenPort: 51820, ListenPortV6: 51821, Mode: "separate"},
		`{"Type": "wireguard", "ListenPort": 1, "ListenPortV6": 2, "PSK": "p", "PersistentKeepaliveInterval": 3, "Mode": "auto", "MTU": 1400}`: {Type: "wireguard", ListenPort: 1, ListenPortV6: 2, PSK: "p", PersistentKeepaliveInterval: 3, Mode: "auto", MTU: 1400},
		`{"Type": "ipip", "DirectRouting": true}`: {Type: "ipip", DirectRouting: true},
		`{"Type": "alloc"}`:                       {Type: "alloc"},
		`{"Type": "extension", "PreStartupCommand": "a", "PostStartupCommand": "b", "SubnetAddCommand": "c", "SubnetRemoveCommand": "d"}`: {Type: "extension", PreStartupCommand: "a", PostStartupCommand: "b", SubnetAddCommand: "c", SubnetRemoveCommand: "d"},
	} {
		c, warnings, err := flannel.ParseNetConf([]byte(`{"network": "10.5.0.0/16", "Backend": ` + backend + `}`))
		if err != nil || len(warnings) > 0 || c.Backend != want || !c.EnableIPv4 {
			t.Errorf("%s: %+v %v %v", backend, c.Backend, warnings, err)
		}
	}
}

func TestNetConfWarnings(t *testing.T) {
	for text, want := range map[string]string{
		`{"Network": "10.5.0.0/16"}`: `Backend is missing: it is udp, as with flannel / write "Backend": {"Type": "vxlan"} for the faster one`,
		`{"Network": "10.5.0.0/16", "EnableNFTable": true, "Backend": {"Type": "vxlan"}}`:      `key "EnableNFTable" of net-conf.json is not known and is ignored / the nearest known is EnableNFTables`,
		`{"Network": "10.5.0.0/16", "color": 1, "Backend": {"Type": "vxlan"}}`:                 `key "color" of net-conf.json is not known and is ignored / remove it`,
		`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan", "Vni2": 4}}`:                  `key "Vni2" of Backend is not known and is ignored / the nearest known is VNI`,
		`{"Network": "10.5.0.0/16", "Backend": {"Type": "host-gw", "VNI": 4}}`:                 `Backend.VNI is an option of vxlan, and Backend.Type is host-gw: it is ignored / remove it`,
		`{"Network": "10.5.3.1/16", "Backend": {"Type": "vxlan"}}`:                             `Network 10.5.3.1/16 has bits set behind its length / it is read as 10.5.0.0/16`,
		`{"Network": "10.5.0.0/16", "IPv6Network": "fc00::/48", "Backend": {"Type": "vxlan"}}`: `IPv6Network is set, but its family is off / set EnableIPv6 true, or remove it`,
		`{"Network": "10.5.0.0/16", "Network": "10.6.0.0/16", "Backend": {"Type": "vxlan"}}`:   `Network occurs twice / the last one counts; remove the others`,
	} {
		_, warnings, err := flannel.ParseNetConf([]byte(text))
		if err != nil || len(warnings) != 1 || warnings[0].Msg+" / "+warnings[0].Hint != want {
			t.Errorf("%s:\n%v %v\nwant %s", text, warnings, err, want)
		}
	}
}

// TestBadNetConf: each fault names field and value.
func TestBadNetConf(t *testing.T) {
	with := func(backend string) string { return `{"Network": "10.5.0.0/16", "Backend": ` + backend + `}` }
	for text, want := range map[string]string{
		``:                              "net-conf.json:  is no JSON object",
		`[1]`:                           "net-conf.json: [1] is no JSON object",
		`{"Network": "10.5.0.0/16"`:     "net-conf.json: EOF",
		`{"Network": "10.5.0.0/16"} {}`: "net-conf.json: something follows the closing brace",
		`{}`:                            "Network is missing, and the family is on",
		`{"Network": "10.5.0.0"}`:       `Network "10.5.0.0" is no prefix`,
		`{"Network": 10}`:               "Network 10 is no prefix",
		`{"Network": "fc00::/48"}`:      `Network "fc00::/48" is of the other family`,
		`{"Network": "0.0.0.0/0"}`:      `Network "0.0.0.0/0" is everything there is`,
		`{"Network": "10.5.0.0/16", "EnableIPv6": true}`:   "IPv6Network is missing, and the family is on",
		`{"EnableIPv4": false}`:                            "EnableIPv4 false and EnableIPv6 false leave no network",
		`{"Network": "10.5.0.0/16", "EnableIPv6": "true"}`: `EnableIPv6 "true" is no boolean`,
		`{"Network": "10.5.0.0/16", "SubnetLen": 33}`:      "SubnetLen 33 is out of range",
		`{"Network": "10.5.0.0/16", "SubnetLen": "24"}`:    `SubnetLen "24" is no whole number`,
		`{"Network": "10.5.0.0/16", "SubnetMin": "10.5"}`:  `SubnetMin "10.5" is no address`,
		`{"Network": "10.5.0.0/16", "Backend": "vxlan"}`:   `Backend: "vxlan" is no JSON object`,
		with(`{}`):                                    "Backend.Type is missing",
		with(`{"Type": "vxlam"}`):                     `Backend.Type "vxlam" is not known`,
		with(`{"Type": "ipsec", "PSK": "x"}`):         `Backend.Type "ipsec" is not supported`,
		with(`{"Type": "tencent-vpc"}`):               `Backend.Type "tencent-vpc" is not supported`,
		with(`{"Type": "vxlan", "VNI": 16777216}`):    "Backend.VNI 16777216 is out of range",
		with(`{"Type": "vxlan", "Port": 65536}`):      "Backend.Port 65536 is out of range",
		with(`{"Type": "vxlan", "MTU": 100}`):         "Backend.MTU 100 leaves pods too little",
		with(`{"Type": "vxlan", "DirectRouting": 1}`): "Backend.DirectRouting 1 is no boolean",
		with(`{"Type": "wireguard", "Mode": "both"}`): `Backend.Mode "both" is not known`,
		with(
			`{"Type": "wireguard", "ListenPortV6": 51820}`,
		): "Backend.ListenPort and Backend.ListenPortV6 are both 51820",
		with(`{"Type": "extension", "SubnetAddCommand": ["a"]}`): `Backend.SubnetAddCommand ["a"] is no text`,
	} {
		_, _, err := flannel.ParseNetConf([]byte(text))
		var got string
		var f *model.Error
		if errors.As(err, &f) {
			got = f.Msg
			if f.Hint == "" {
				t.Errorf("%s: no hint", text)
			}
		}
		if got != want {
			t.Errorf("%s:\n%v, want %s", text, err, want)
		}
	}
}

// TestRanges: missing values are filled in as flannel does.
func TestRanges(t *testing.T) {
	for text, want := range map[string]string{
		`"Network": "10.5.0.0/16"`:                                                   "24 10.5.1.0-10.5.255.0",
		`"Network": "10.5.0.0/22"`:                                                   "24 10.5.1.0-10.5.3.0",
		`"Network": "10.5.0.0/24"`:                                                   "26 10.5.0.64-10.5.0.192",
		`"Network": "10.5.0.0/28"`:                                                   "30 10.5.0.4-10.5.0.12",
		`"Network": "255.255.0.0/16"`:                                                "24 255.255.1.0-255.255.255.0",
		`"Network": "10.5.0.0/16", "SubnetMin": "10.5.7.0"`:                          "24 10.5.7.0-10.5.255.0",
		`"Network": "10.5.0.0/29"`:                                                   "Network 10.5.0.0/29 is too small",
		`"Network": "10.5.0.0/16", "SubnetLen": 31`:                                  "SubnetLen 31 is too long",
		`"Network": "10.5.0.0/16", "SubnetLen": 17`:                                  "SubnetLen 17 is too short for Network 10.5.0.0/16",
		`"Network": "10.5.0.0/16", "SubnetMin": "10.6.0.0"`:                          "SubnetMin 10.6.0.0 is not in Network 10.5.0.0/16",
		`"Network": "10.5.0.0/16", "SubnetMax": "10.5.0.8"`:                          "SubnetMax 10.5.0.8 is no multiple of a subnet of length 24",
		`"Network": "10.5.0.0/16", "SubnetMin": "10.5.9.0", "SubnetMax": "10.5.8.0"`: "SubnetMax 10.5.8.0 is before SubnetMin 10.5.9.0",
		`"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fc00::/48"`:        "64 fc00:0:0:1::-fc00:0:0:ffff::",
		`"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fc00::/64"`:        "66 fc00:0:0:0:4000::-fc00:0:0:0:c000::",
		`"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fc00::/126"`:       "IPv6Network fc00::/126 is too small",
	} {
		c, _, err := flannel.ParseNetConf([]byte(`{` + text + `, "Backend": {"Type": "vxlan"}}`))
		if err != nil {
			t.Fatal(text, err)
		}
		v4, v6, err := c.Ranges()
		got := ""
		for _, r := range []flannel.Range{v4, v6} {
			if r.Network.IsValid() && err == nil {
				got += strings.TrimSpace(strings.Join([]string{itoa(r.Len), short(r.First) + "-" + short(r.Last)}, " "))
			}
		}
		var f *model.Error
		if errors.As(err, &f) {
			got = f.Msg
		}
		if got != want {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
}

func FuzzNetConf(f *testing.F) {
	f.Add([]byte(`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan", "VNI": 1}}`))
	f.Add(
		[]byte(
			`{"EnableIPv6": true, "IPv6Network": "fc00::/48", "IPv6SubnetMin": "fc00::", "Backend": {"Type": "wireguard"}}`,
		),
	)
	f.Fuzz(func(t *testing.T, text []byte) {
		c, _, err := flannel.ParseNetConf(text)
		if err != nil {
			return
		}
		v4, v6, err := c.Ranges()
		for _, r := range []flannel.Range{v4, v6} {
			for _, p := range r.Free([]netip.Prefix{r.Network}) {
				t.Errorf("%s: %s is free in a network that is taken", text, p)
			}
			if free := r.Free(nil); err == nil && r.Network.IsValid() {
				for _, p := range free {
					if !r.Holds(p) || !r.Network.Overlaps(p) {
						t.Errorf("%s: %s", text, p)
					}
				}
			}
		}
	})
}
