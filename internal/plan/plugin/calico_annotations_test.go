// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// specOf reads annotations as Plan does.
func specOf(conf string, annotations map[string]string) (calicoSpec, error) {
	c, err := readCalico(confOf(conf))
	if err != nil {
		return calicoSpec{}, err
	}
	return c.spec(model.Request{Origin: &model.Origin{Annotations: CalicoAnnotations(annotations, nil)}})
}

const calicoOpen = `{"type":"calico","policy":{"type":"k8s"},"ipam":{"type":"calico-ipam"},
	"feature_control":{"ip_addrs_no_ipam":true,"floating_ips":true,"source_prefixes":true}}`

func TestCalicoAnnotations(t *testing.T) {
	got := CalicoAnnotations(map[string]string{
		"cni.projectcalico.org/ipv4pools": `["a"]`, "cni.projectcalico.org/podIP": "10.0.0.1/32",
		"cni.projectcalico.org/hwAddr": "",
		"qos.projectcalico.org/dscp":   "EF", "kubernetes.io/ingress-bandwidth": "1M", "kubernetes.io/config.source": "api",
	}, map[string]string{
		"cni.projectcalico.org/ipv4pools": `["b"]`, "cni.projectcalico.org/ipv6pools": `["c"]`,
		"cni.projectcalico.org/ipAddrs": `["10.0.0.9"]`,
	})
	want := [][2]string{
		{"cni.projectcalico.org/ipv4pools", `["a"]`},
		{"cni.projectcalico.org/ipv6pools", `["c"]`},
		{"kubernetes.io/ingress-bandwidth", "1M"},
		{"qos.projectcalico.org/dscp", "EF"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCalicoSpec(t *testing.T) {
	w, err := specOf(calicoOpen, map[string]string{
		"cni.projectcalico.org/ipv4pools": `["a","10.0.0.0/16"]`, "cni.projectcalico.org/ipFamilies": `["IPv6","IPv4"]`,
		"cni.projectcalico.org/ipAddrs": `["10.0.0.9","fd00::9"]`, "cni.projectcalico.org/hwAddr": "02:00:00:00:00:09",
		"cni.projectcalico.org/floatingIPs":           `["192.0.2.1","192.0.2.2"]`,
		"cni.projectcalico.org/allowedSourcePrefixes": `["10.9.1.0/24","10.9.0.0/16","192.0.2.7","fd09::/64"]`,
		"qos.projectcalico.org/ingressBandwidth":      "10M", "kubernetes.io/ingress-bandwidth": "1M",
		"kubernetes.io/egress-bandwidth":       "1Mi",
		"qos.projectcalico.org/egressPeakrate": "2M", "qos.projectcalico.org/egressMinburst": "1500",
		"qos.projectcalico.org/egressBurst":       "64k",
		"qos.projectcalico.org/ingressPacketRate": "100", "qos.projectcalico.org/egressMaxConnections": "7",
		"qos.projectcalico.org/dscp": "AF21",
	})
	if err != nil {
		t.Fatal(err)
	}
	dscp := uint8(18)
	want := calicoSpec{
		request: model.AddressRequest{
			Pools4: []string{"a", "10.0.0.0/16"}, Families: []model.IPFamily{model.IPv6, model.IPv4},
			Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")},
		},
		mac:      [6]byte{2, 0, 0, 0, 0, 9},
		floating: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
		sources: []netip.Prefix{
			netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("fd09::/64"),
		},
		qos: qos{
			ingress: qosLimits{rate: 10e6, burst: 4 << 30, packets: 100, packetBurst: 5},
			egress:  qosLimits{rate: 1 << 20, burst: 64e3, peak: 2e6, minburst: 1500, conns: 7}, dscp: &dscp,
		},
	}
	if !reflect.DeepEqual(w, want) {
		t.Errorf("%+v, want\n%+v", w, want)
	}
	if w, err = specOf(`{"type":"calico","ipam":{"type":"x"}}`, map[string]string{
		"cni.projectcalico.org/ipAddrs": "x",
	}); err != nil || len(w.request.Addrs) > 0 {
		t.Errorf("without policy.type annotations are read: %+v %v", w, err)
	}
}

func TestAddressClaimOfAPod(t *testing.T) {
	read := func(conf string, annotations map[string]string) (model.AddressRequest, error) {
		return Calico{}.AddressRequest(Input{Conf: confOf(conf), Request: model.Request{Origin: &model.Origin{
			Pod:         model.PodRef{Namespace: "shop", Name: "db-0"},
			Annotations: CalicoAnnotations(annotations, map[string]string{addressClaim: "namespaces-have-none"}),
		}}})
	}
	if w, err := read(calicoOpen, map[string]string{addressClaim: "db"}); err != nil || w.Claim != "shop/db" {
		t.Errorf("%+v %v", w, err)
	}
	if w, err := read(calicoOpen, nil); err != nil || w.Claim != "" {
		t.Errorf("%+v %v", w, err)
	}
	for _, tt := range []struct{ conf, name, addrs, want string }{
		{
			calicoOpen, "A_b", "",
			`annotation weft.dev/address-claim: "A_b" cannot be used (lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them)`,
		},
		{
			calicoOpen, "db", `["10.0.0.1"]`,
			"annotations weft.dev/address-claim and cni.projectcalico.org/ipAddrs exclude each other (leave one out)",
		},
		{
			`{"type":"calico","policy":{"type":"k8s"},"ipam":{"type":"host-local","subnet":"usePodCidr"}}`, "db", "",
			"annotation weft.dev/address-claim: ipam.type host-local does not support claims (it needs calico-ipam)",
		},
	} {
		annotations := map[string]string{addressClaim: tt.name}
		if tt.addrs != "" {
			annotations["cni.projectcalico.org/ipAddrs"] = tt.addrs
		}
		if _, err := read(tt.conf, annotations); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v\nwant %s", tt.name, err, tt.want)
		}
	}
}

func TestCalicoBadAnnotations(t *testing.T) {
	const cni, qos = "annotation cni.projectcalico.org/", "annotation qos.projectcalico.org/"
	many := `["x"` + strings.Repeat(`,"x"`, 29_999) + "]"
	for _, tt := range []struct{ key, value, want string }{
		{
			"cni.projectcalico.org/ipAddrs", "10.0.0.1", cni +
				`ipAddrs: "10.0.0.1" is not a JSON list of strings (for example ["a", "b"])`,
		},
		{"cni.projectcalico.org/ipAddrs", "[]", cni + `ipAddrs: it contains no address (leave it out)`},
		{
			"cni.projectcalico.org/ipAddrs", `["10.0.0.1","10.0.0.2"]`,
			cni + `ipAddrs: 10.0.0.2 and 10.0.0.1 (at most one IPv4 and one IPv6 address)`,
		},
		{
			"cni.projectcalico.org/ipAddrs", `["10.0.0.1/24"]`,
			cni + `ipAddrs: "10.0.0.1/24" is not a host address (for example ["10.0.0.7"])`,
		},
		{
			"cni.projectcalico.org/floatingIPs", `["127.0.0.1"]`,
			cni + `floatingIPs: "127.0.0.1" is not a host address (for example ["10.0.0.7"])`,
		},
		{
			"cni.projectcalico.org/floatingIPs", many, cni +
				`floatingIPs: 30000 entries are more than 64 (leave some out)`,
		},
		{
			"cni.projectcalico.org/allowedSourcePrefixes", many,
			cni + `allowedSourcePrefixes: 30000 entries are more than 64 (leave some out)`,
		},
		{"cni.projectcalico.org/ipFamilies", `["ipv4"]`, cni + `ipFamilies: "ipv4" is not an IP family (IPv4 or IPv6)`},
		{
			"cni.projectcalico.org/hwAddr", "01:00:00:00:00:01",
			cni +
				`hwAddr: "01:00:00:00:00:01" is not a unicast MAC address (a unicast address, for example 02:00:00:00:00:01)`,
		},
		{
			"cni.projectcalico.org/allowedSourcePrefixes", `["x"]`,
			cni + `allowedSourcePrefixes: "x" is not a prefix (for example ["192.0.2.0/24"])`,
		},
		{
			"qos.projectcalico.org/ingressBandwidth", "10 M",
			qos + `ingressBandwidth: "10 M" is not a quantity (for example 10M, 1500k or 2Gi)`,
		},
		{"qos.projectcalico.org/ingressBandwidth", "1", qos + `ingressBandwidth: 1 is not between 1000 and 1000000000000000`},
		{
			"qos.projectcalico.org/egressBurst", "10k", qos +
				`egressBurst: it has no effect without a bandwidth (set qos.projectcalico.org/egressBandwidth)`,
		},
		{
			"qos.projectcalico.org/egressPeakrate", "10k", qos +
				`egressPeakrate: it has no effect without a bandwidth (set qos.projectcalico.org/egressBandwidth)`,
		},
		{
			"qos.projectcalico.org/egressMinburst", "10k", qos +
				`egressMinburst: it has no effect without a peak rate (set qos.projectcalico.org/egressPeakrate)`,
		},
		{"qos.projectcalico.org/egressPacketRate", "100k", qos + `egressPacketRate: 100k is not between 1 and 10000`},
		{
			"qos.projectcalico.org/egressPacketBurst", "1",
			qos + `egressPacketBurst: it has no effect without a packet rate (set qos.projectcalico.org/egressPacketRate)`,
		},
		{"qos.projectcalico.org/dscp", "64", qos + `dscp: "64" is not a DSCP (0 to 63, or a name: EF, CS1, AF11 …)`},
	} {
		if _, err := specOf(calicoOpen, map[string]string{tt.key: tt.value}); err == nil || err.Error() != tt.want {
			t.Errorf("%s=%s:\n%v, want\n%s", tt.key, tt.value, err, tt.want)
		}
	}
	for key, want := range map[string]string{
		"ipAddrs": cni +
			"ipAddrs: ipam.type host-local cannot allocate a requested address (it needs calico-ipam)",
		"ipAddrsNoIpam": cni +
			`ipAddrsNoIpam: feature_control.ip_addrs_no_ipam is off (set "feature_control": {"ip_addrs_no_ipam": true} in the network's configuration, or leave the annotation out)`,
		"floatingIPs": cni +
			`floatingIPs: feature_control.floating_ips is off (set "feature_control": {"floating_ips": true} in the network's configuration, or leave the annotation out)`,
		"allowedSourcePrefixes": cni +
			`allowedSourcePrefixes: feature_control.source_prefixes is off (set "feature_control": {"source_prefixes": true} in the network's configuration, or leave the annotation out)`,
	} {
		for _, value := range []string{`["10.0.0.1"]`, many} { // values of a disabled annotation are not read
			_, err := specOf(`{"type":"calico","policy":{"type":"k8s"},"ipam":{"type":"host-local"}}`, map[string]string{
				"cni.projectcalico.org/" + key: value,
			})
			if key == "ipAddrs" && value == many { // it cannot be disabled
				continue
			}
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want\n%s", key, err, want)
			}
		}
	}
	noIPAM := `{"type":"calico","policy":{"type":"k8s"},"ipam":{"type":"host-local"},"feature_control":{"ip_addrs_no_ipam":true}}`
	if _, err := specOf(noIPAM, map[string]string{"cni.projectcalico.org/ipAddrsNoIpam": `["10.0.0.1"]`}); err == nil ||
		err.Error() != cni+"ipAddrsNoIpam: ipam.type is host-local (it needs calico-ipam)" {
		t.Error(err)
	}
	_, err := specOf(calicoOpen, map[string]string{
		"cni.projectcalico.org/ipAddrs": `["10.0.0.1"]`, "cni.projectcalico.org/ipAddrsNoIpam": `["10.0.0.1"]`,
	})
	if want := "annotations cni.projectcalico.org/ipAddrs and cni.projectcalico.org/ipAddrsNoIpam exclude each other (leave one out)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestParseQuantity(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "1k": "1000", "1.5M": "1.5e+06", "2Ki": "2048", "3Gi": "3.221225472e+09", "1e3": "1000", "1E3": "1000",
		"1E": "1e+18", "1Ei": "1.152921504606847e+18",
		"100m": "0.1", "": "no", "k": "no", "1kk": "no", "1K": "no", "0x1": "no", "inf": "no", "nan": "no", "1_0": "no",
		"1 M": "no", "--1": "no", "1e": "no", "1ki": "no",
	} {
		v, ok := parseQuantity(text)
		got := fmt.Sprint(v)
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzCalicoAnnotations(f *testing.F) {
	f.Add("ipAddrs", `["10.0.0.1"]`, "ingressBandwidth", "1M")
	f.Fuzz(func(t *testing.T, a, av, b, bv string) {
		w, err := specOf(calicoOpen, map[string]string{calicoCNI + a: av, calicoQoS + b: bv})
		if err == nil && (len(w.request.Addrs) > 2 || w.qos.ingress.rate > 2e15) {
			t.Errorf("%+v", w)
		}
	})
}
