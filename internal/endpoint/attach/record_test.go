// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestInspectedTypes bounds the structures that encoding/json inspects before the first record of a process: each costs
// some 8 µs, five times for a pod with five plugins. A list of a new kind is a state.List, and a structure that few
// records have has a MarshalJSON.
func TestInspectedTypes(t *testing.T) {
	const most = 14
	seen := map[reflect.Type]bool{}
	inspect(reflect.TypeFor[attach.Record](), seen)
	if len(seen) > most {
		t.Errorf("%d structures, more than %d: %v", len(seen), most, seen)
	}
}

// inspect adds the structures that encoding/json inspects with a type.
func inspect(typ reflect.Type, seen map[reflect.Type]bool) {
	for _, own := range []string{"MarshalJSON", "MarshalText"} {
		if _, ok := reflect.PointerTo(typ).MethodByName(own); ok {
			return
		}
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		inspect(typ.Elem(), seen)
	case reflect.Struct:
		if seen[typ] {
			return
		}
		seen[typ] = true
		for _, field := range reflect.VisibleFields(typ) {
			inspect(field.Type, seen)
		}
	}
}

// TestRecordIsRestored: a record is stored whole, in the form that earlier programs read, also what few records have.
func TestRecordIsRestored(t *testing.T) {
	rec := attach.Record{
		Version: attach.RecordVersion, Stage: attach.Pending, Request: model.Request{ContainerID: "c", IfName: "eth0"},
		Acts: []attach.Act{{
			Kind: attach.ActVM,
			Fragment: &state.Fragment{
				Owner: "o",
				Host: state.Space{
					Links:  state.List[state.Link]{{Name: "veth0", MAC: state.MAC{2}}},
					Addrs:  state.List[state.Addr]{{Link: "veth0", Prefix: netip.MustParsePrefix("10.0.0.1/24")}},
					Routes: state.List[state.Route]{{Dst: netip.MustParsePrefix("10.0.0.2/32"), Link: "veth0"}},
				},
				Pod: state.Space{Sysctls: state.List[state.Sysctl]{{Name: "net.core.somaxconn", Value: "500"}}},
			},
			Guests: state.List[model.GuestConfig]{{
				Interface: "default", PodLink: "eth0", Link: "tap0", LinkMAC: "02:00:00:00:00:01",
			}},
			Published: &attach.Published{Ports: []model.PublishedPort{{
				Protocol: "tcp", ContainerPort: 80, HostPort: 8080,
			}}},
			Interface: &attach.VMInterface{
				VMInterface: model.VMInterface{Name: "default", Model: "virtio"}, PodLink: "eth0",
				Device: model.VMDevice{Name: "default", Target: "tap0"},
			},
		}},
	}
	stored, err := attach.Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	back, err := attach.Decode("test", stored)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, back, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		`"published":{"ports":[{"protocol":"tcp","containerPort":80,"hostPort":8080}]}`,
		`"interface":{"name":"default","index":0,`, `"podLink":"eth0","device":{"name":"default","target":"tap0"}}`,
		`"guests":[{"interface":"default","podLink":"eth0","link":"tap0","linkMAC":"02:00:00:00:00:01"}]`,
		`"sysctls":[{"name":"net.core.somaxconn","value":"500"}]`,
	} {
		if !strings.Contains(string(stored), want) {
			t.Errorf("%s is missing in %s", want, stored)
		}
	}
	if !json.Valid(stored) {
		t.Errorf("no JSON: %s", stored)
	}
}

// TestRestage: another stage changes the beginning of what is stored, and keeps the rest as it is, byte by byte. What
// another ADD has stored, or what is stored in another form, is replaced as a whole.
func TestRestage(t *testing.T) {
	for _, boot := range []string{"", `a "stage":"pending" <boot>`} {
		rec := attach.Record{
			Boot: boot, Stage: attach.Pending, Serial: 17, Request: model.Request{ContainerID: "c", IfName: "eth0"},
			Acts: []attach.Act{{Kind: attach.ActIPAM}},
		}
		encoded := func(r attach.Record) string {
			b, err := attach.Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		done, other := rec, rec
		done.Stage, other.Serial = attach.Done, 16
		further := strings.TrimSuffix(encoded(rec), "}") + `,"further":1}`
		for what, tc := range map[string]struct{ old, want string }{
			"the same":        {encoded(rec), encoded(done)},
			"with more":       {further, strings.TrimSuffix(encoded(done), "}") + `,"further":1}`},
			"of another ADD":  {encoded(other), encoded(done)},
			"in another form": {"{ " + encoded(rec)[1:], encoded(done)},
			"nothing":         {"", encoded(done)},
		} {
			have, err := attach.Restage([]byte(tc.old), rec, attach.Done)
			if err != nil || string(have) != tc.want {
				t.Errorf("%s, boot %q: %v\n%s\nwant\n%s", what, boot, err, have, tc.want)
			}
		}
	}
}
