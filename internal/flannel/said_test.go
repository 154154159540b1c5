// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

func itoa(n int) string { return strconv.Itoa(n) }

// short is an address as netip writes it, but for one group of zeros that a reader of these tests expects.
func short(a netip.Addr) string {
	switch s := a.String(); s {
	case "fc00::4000:0:0:0":
		return "fc00:0:0:0:4000::"
	case "fc00::c000:0:0:0":
		return "fc00:0:0:0:c000::"
	default:
		return s
	}
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// What a node of flannel v0.28.9 writes, word for word.
func TestAnnotations(t *testing.T) {
	const p = "flannel.alpha.coreos.com/"
	written := map[string]string{
		p + "kube-subnet-manager": "true", p + "backend-type": "vxlan",
		p + "backend-data": `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}`, p + "public-ip": "192.168.0.1",
		p + "backend-v6-data": `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e4"}`, p + "public-ipv6": "fd00::1",
	}
	k := flannel.DefaultKeys()
	got, err := k.Read(written)
	if err != nil {
		t.Fatal(err)
	}
	want := &model.Published{
		Backend: "vxlan", Data: flannel.VTEPData{VNI: 1, VTEPMAC: "12:c6:65:89:b4:e3"}.String(),
		DataV6: `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e4"}`, Addrs: addrs("192.168.0.1", "fd00::1"),
	}
	if !want.Equal(got) {
		t.Fatalf("%+v", got)
	}
	if d := cmp.Diff(written, k.Write(*got, nil)); d != "" {
		t.Error(d)
	}
	overwritten := k.Write(*got, map[string]string{p + "public-ip-overwrite": "203.0.113.1"})
	if overwritten[p+"public-ip"] != "203.0.113.1" || overwritten[p+"public-ipv6"] != "fd00::1" {
		t.Errorf("%v", overwritten)
	}
	gw := k.Write(model.Published{Backend: "host-gw", Addrs: addrs("192.168.0.1")}, nil)
	if d := cmp.Diff(map[string]string{
		p + "kube-subnet-manager": "true", p + "backend-type": "host-gw", p + "backend-data": "null",
		p + "public-ip": "192.168.0.1",
	}, gw); d != "" {
		t.Error(d)
	}
	if back, err := k.Read(gw); err != nil || back.Data != "" || back.Backend != "host-gw" {
		t.Error(back, err)
	}
	if none, err := k.Read(map[string]string{p + "backend-type": "vxlan"}); none != nil || err != nil {
		t.Error("a node that takes no part says something", none, err)
	}
}

func TestPrefixes(t *testing.T) {
	for prefix, want := range map[string]string{
		"flannel.alpha.coreos.com": "flannel.alpha.coreos.com/public-ip", "a.b/": "a.b/public-ip", "a.b/x": "a.b/x-public-ip",
		"a.b/x-": "a.b/x-public-ip",
		"":       "", "localhost": "", "a.b/c/d": "", "A.b": "", "a.b/x y": "",
	} {
		k, err := flannel.KeysOf(prefix)
		if k.PublicIP != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", prefix, k.PublicIP, err)
		}
	}
}

func TestBadAnnotations(t *testing.T) {
	const p = "flannel.alpha.coreos.com/"
	for key, value := range map[string]string{
		"public-ip": "fd00::1", "public-ipv6": "10.0.0.1", "backend-data": "{", "backend-v6-data": "x",
	} {
		_, err := flannel.DefaultKeys().Read(map[string]string{p + "kube-subnet-manager": "true", p + key: value})
		if err == nil {
			t.Errorf("%s %q is taken", key, value)
		}
	}
	if _, err := flannel.DefaultKeys().External(map[string]string{p + "node-public-ip": "x"}); err == nil || err.Error() !=
		`annotation flannel.alpha.coreos.com/node-public-ip "x" is no address of its family (correct the annotation, or remove it)` {
		t.Error(err)
	}
}

// What flannel v0.28.9 writes into etcd, word for word.
func TestLease(t *testing.T) {
	for _, tt := range []struct{ key, value string }{
		{
			"10.5.34.0-24",
			`{"PublicIP":"192.168.0.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}}`,
		},
		{
			"10.5.34.0-24&fc00:0:0:5::-64",
			`{"PublicIP":"192.168.0.1","PublicIPv6":"fd00::1","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"},"BackendV6Data":{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e4"}}`,
		},
		{"10.5.34.0-24", `{"PublicIP":"192.168.0.1","PublicIPv6":null,"BackendType":"host-gw"}`},
	} {
		l, err := flannel.ParseLease(tt.key, []byte(tt.value))
		if err != nil || l.Key() != tt.key || string(l.Value()) != tt.value {
			t.Errorf("%s %s: %v\n%s %s", tt.key, tt.value, err, l.Key(), l.Value())
		}
	}
	for _, tt := range []struct{ key, value string }{
		{"10.5.34.0", "{}"},
		{"10.5.34.1-24", "{}"},
		{"10.5.34.0-33", "{}"},
		{"fc00::-64", "{}"},
		{"10.5.34.0-24&10.5.0.0-24", "{}"},
		{"0.0.0.0-0", "{}"},
		{"10.5.34.0-24", "x"},
		{"10.5.34.0-24", `{"PublicIP":"fd00::1"}`},
		{"10.5.34.0-24", `{"PublicIPv6":"10.0.0.1"}`},
	} {
		if l, err := flannel.ParseLease(tt.key, []byte(tt.value)); err == nil {
			t.Errorf("%s %s is taken as %s", tt.key, tt.value, l)
		}
	}
}

// Where IPv4 is off flannel v0.28.9 writes 0.0.0.0, and takes every lease that says so for its own: weft writes another
// one.
func TestLeaseWithoutIPv4(t *testing.T) {
	said := map[netip.Addr]bool{netip.IPv4Unspecified(): true}
	for _, key := range []string{"0.0.0.0-0&fc00:0:0:5::-64", "0.0.0.0-0&fc00:0:0:6::-64"} {
		l, err := flannel.ParseLease(key, []byte(`{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::1","BackendType":"host-gw"}`))
		if err != nil || l.Key() != key || len(l.Published.Addrs) != 1 {
			t.Fatalf("%s: %v, %v", key, l, err)
		}
		var v struct{ PublicIP netip.Addr }
		if err := json.Unmarshal(l.Value(), &v); err != nil || said[v.PublicIP] ||
			!netip.MustParsePrefix("240.0.0.0/4").Contains(v.PublicIP) || v.PublicIP.As4()[0] == 255 {
			t.Errorf("%s: %s, %v", key, l.Value(), err)
		}
		said[v.PublicIP] = true
		again, err := flannel.ParseLease(key, l.Value())
		if err != nil || !again.Published.Equal(&l.Published) {
			t.Errorf("%s became %v, %v", l.Value(), again, err)
		}
	}
}

func TestFree(t *testing.T) {
	c, _, err := flannel.ParseNetConf([]byte(`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`))
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := c.Ranges()
	if err != nil {
		t.Fatal(err)
	}
	free := r.Free([]netip.Prefix{
		netip.MustParsePrefix("10.5.2.0/24"), netip.MustParsePrefix("10.5.4.0/22"), netip.MustParsePrefix("10.5.9.128/25"),
	})
	if len(free) != 100 || free[0].String() != "10.5.1.0/24" || free[1].String() != "10.5.3.0/24" ||
		free[2].String() != "10.5.8.0/24" || free[3].String() != "10.5.10.0/24" {
		t.Errorf("%v", free)
	}
	if all := r.Free([]netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")}); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

func TestMasqAgent(t *testing.T) {
	m, warnings, err := flannel.ParseMasqAgent(
		[]byte(`{"nonMasqueradeCIDRs": ["10.0.0.0/8", "fd00::/8"], "masqLinkLocal": true, "resyncInterval": "5s"}`),
	)
	if err != nil || len(warnings) > 0 || m.Resync.Seconds() != 5 || !slices.Equal(m.Except(), []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10"),
	}) {
		t.Error(m, warnings, err)
	}
	for text, want := range map[string]string{
		`{"nonMasqueradeCIDRs": ["10.0.0.1/8"]}`: `ip-masq-agent.nonMasqueradeCIDRs "10.0.0.1/8" is no prefix (write for example "10.0.0.0/8")`,
		`{"nonMasqueradeCIDRs": 10}`:             `ip-masq-agent.nonMasqueradeCIDRs 10 is no list of prefixes (write for example ["10.0.0.0/8"])`,
		`{"masqLinkLocal": "maybe"}`:             `ip-masq-agent.masqLinkLocal "maybe" is no boolean (write true or false, without quotes)`,
		`{"resyncInterval": "never"}`:            `ip-masq-agent.resyncInterval "never" is no duration of a second or more (write for example "60s")`,
	} {
		if _, _, err := flannel.ParseMasqAgent([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzLease(f *testing.F) {
	f.Add("10.5.34.0-24&fc00:0:0:5::-64",
		[]byte(`{"PublicIP":"1.2.3.4","PublicIPv6":"fd00::1","BackendType":"vxlan","BackendData":{}}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		l, err := flannel.ParseLease(key, value)
		if err != nil {
			return
		}
		again, err := flannel.ParseLease(l.Key(), l.Value())
		if err != nil || again.Key() != l.Key() || string(again.Value()) != string(l.Value()) {
			t.Errorf("%s %s becomes %s %s: %v", key, value, l.Key(), l.Value(), err)
		}
	})
}

func FuzzAnnotations(f *testing.F) {
	f.Add("vxlan", `{"VNI":1}`, "10.0.0.1", "fd00::1")
	k := flannel.DefaultKeys()
	f.Fuzz(func(t *testing.T, kind, data, v4, v6 string) {
		p, err := k.Read(map[string]string{k.Managed: "true", k.Type: kind, k.Data: data, k.PublicIP: v4, k.PublicIPv6: v6})
		if err != nil || len(p.Addrs) == 0 || !p.Addrs[0].Is4() {
			return
		}
		if again, err := k.Read(k.Write(*p, nil)); err != nil || !again.Equal(p) {
			t.Errorf("%+v becomes %+v: %v", p, again, err)
		}
	})
}

func FuzzMasqAgent(f *testing.F) {
	f.Add([]byte(`{"nonMasqueradeCIDRs": ["10.0.0.0/8"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, _, err := flannel.ParseMasqAgent(text); err == nil && m.Resync < 1e9 {
			t.Error(m)
		}
	})
}
