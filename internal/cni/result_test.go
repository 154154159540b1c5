// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

func sample() model.Result {
	two, table := 1, 100
	return model.Result{
		Interfaces: []model.Interface{
			{Name: "veth0", MAC: "02:00:00:00:00:01"},
			{Name: "eth0", MAC: "02:00:00:00:00:02", MTU: 1400, Sandbox: "/run/netns/x"},
		},
		IPs: []model.IP{
			{Interface: &two, Address: netip.MustParsePrefix("10.1.0.5/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
			{Interface: &two, Address: netip.MustParsePrefix("fd00::5/64")},
		},
		Routes: []model.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.1.0.1"), MTU: 1300, Table: &table},
			{Dst: netip.MustParsePrefix("::/0")},
		},
		DNS: model.DNS{Nameservers: []string{"10.0.0.53"}, Search: []string{"a.b"}},
	}
}

func compareResults(t *testing.T, want, got model.Result) {
	t.Helper()
	opts := cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEveryVersionIsWhatTheLibraryReads formats in every version and lets the reference library read it back.
func TestEveryVersionIsWhatTheLibraryReads(t *testing.T) {
	for _, v := range Versions() {
		t.Run(v, func(t *testing.T) {
			b, err := FormatResult(sample(), v)
			if err != nil {
				t.Fatal(err)
			}
			r, err := create.CreateFromBytes(b)
			if err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			if r.Version() != v {
				t.Errorf("version %s", r.Version())
			}
			latest, err := types100.NewResultFromResult(r)
			if err != nil || len(latest.IPs) != 2 || latest.IPs[0].Address.String() != "10.1.0.5/24" ||
				latest.IPs[0].Gateway.String() != "10.1.0.1" {
				t.Errorf("%+v %v", latest, err)
			}
			if ours, err := ParseResult(b); err != nil || len(ours.IPs) != 2 || ours.IPs[1].Address.String() != "fd00::5/64" ||
				len(ours.Routes) != 2 {
				t.Errorf("%+v %v", ours, err)
			}
			old := strings.Contains(string(b), `"ip4"`) && strings.Contains(string(b), `"ip6"`) &&
				!strings.Contains(string(b), "interfaces")
			if wantOld := v == "0.1.0" || v == "0.2.0"; old != wantOld {
				t.Errorf("ip4/ip6 form: %v\n%s", old, b)
			}
		})
	}
}

// TestBytesAreTheLibrarys compares the fast path with what the reference library prints.
func TestBytesAreTheLibrarys(t *testing.T) {
	for _, v := range []string{"1.0.0", "1.1.0"} {
		ours, err := FormatResult(sample(), v)
		if err != nil {
			t.Fatal(err)
		}
		r, err := create.CreateFromBytes(ours)
		if err != nil {
			t.Fatal(err)
		}
		var theirs strings.Builder
		if err := r.(*types100.Result).PrintTo(&theirs); err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(ours, &a) != nil || json.Unmarshal([]byte(theirs.String()), &b) != nil {
			t.Fatal("not JSON")
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("%s (-library +weft):\n%s", v, diff)
		}
		back, err := ParseResult(ours)
		if err != nil {
			t.Fatal(err)
		}
		compareResults(t, sample(), back)
	}
}

func TestWhatOldVersionsCannotExpress(t *testing.T) {
	if _, err := FormatResult(model.Result{}, "0.2.0"); err == nil {
		t.Log("0.2.0 says a result without addresses")
	}
	if _, err := FormatResult(sample(), "3.0.0"); code(err) != model.CodeIncompatibleVersion {
		t.Errorf("3.0.0: %v", err)
	}
	b, err := FormatResult(model.Result{}, "1.0.0")
	if err != nil || string(b) != "{\n    \"cniVersion\": \"1.0.0\"\n}" {
		t.Errorf("empty: %s %v", b, err)
	}
}

func TestBadResults(t *testing.T) {
	for _, s := range []string{
		"", "[]", `{"cniVersion":"5.0.0"}`, `{"cniVersion":"1.0.0","ips":[{}]}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/24","interface":3}]}`,
		`{"cniVersion":"1.0.0","routes":[{}]}`, `{"cniVersion":"0.2.0","ip4":{"ip":"x"}}`, `{"cniVersion":"0.4.0","ips":5}`,
		`{"cniVersion":4}`,
	} {
		if _, err := ParseResult([]byte(s)); code(err) == 0 {
			t.Errorf("%s: error %v", s, err)
		}
	}
}

func TestErrors(t *testing.T) {
	f := model.Errorf(model.CodeExhausted, "widen it", "no address in %s", "10.0.0.0/30")
	var d ErrorDocument
	if err := json.Unmarshal(FormatError(fmt.Errorf("network n: %w", f), "0.4.0"), &d); err != nil {
		t.Fatal(err)
	}
	if want := (ErrorDocument{"0.4.0", 101, "network n: no address in 10.0.0.0/30", "widen it"}); d != want {
		t.Errorf("got %+v", d)
	}
	var lib types.Error
	if err := json.Unmarshal(FormatError(errors.New("boom"), ""), &lib); err != nil || lib.Code != 999 ||
		lib.Msg != "boom" {
		t.Errorf("got %+v %v", lib, err)
	}
	back, ok := ParseError(FormatError(f, "1.0.0"))
	if !ok || back.Code != f.Code || back.Hint != f.Hint || back.Msg != f.Msg {
		t.Errorf("back: %+v", back)
	}
	if _, ok := ParseError([]byte(`{"cniVersion":"1.0.0"}`)); ok {
		t.Error("a result is no error")
	}
	if got := string(VersionReply()); got !=
		`{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`+"\n" {
		t.Errorf("VERSION: %s", got)
	}
}

func FuzzParseResult(f *testing.F) {
	for _, v := range Versions() {
		b, err := FormatResult(sample(), v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add(`{"cniVersion":"1.0.0","ips":[{"address":"::ffff:1.2.3.4/120"}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseResult([]byte(s))
		if err != nil {
			if code(err) == 0 {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		for _, v := range []string{"0.2.0", "0.4.0", "1.1.0"} {
			b, err := FormatResult(r, v)
			if err == nil && v == "1.1.0" {
				if _, err := ParseResult(b); err != nil {
					t.Fatalf("%v\n%s", err, b)
				}
			}
		}
		if f, ok := ParseError([]byte(s)); ok && f.Code == 0 {
			t.Fatal("an error without a code")
		}
	})
}
