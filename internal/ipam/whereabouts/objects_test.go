// SPDX-License-Identifier: Apache-2.0

package whereabouts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
)

// objects lists some manifests; kinds without manifests are not installed.
func objects(t *testing.T, manifests ...string) Lister {
	t.Helper()
	byKind := map[string][]store.Object{}
	for _, text := range manifests {
		o, err := store.NewObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		byKind[o.Key.Kind] = append(byKind[o.Key.Kind], o)
	}
	return func(_ context.Context, kind store.Kind) ([]store.Object, error) {
		if all := byKind[kind.Kind]; all != nil {
			return all, nil
		}
		return nil, store.ErrNotFound
	}
}

func object(kind, name, spec string) string {
	return `{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"` + kind + `","metadata":{"name":"` + name +
		`","namespace":"n"},"spec":` + spec + `}`
}

// TestRead: every kind of object is read, and a reservation with an ambiguous name yields each possible address.
func TestRead(t *testing.T) {
	all, err := Read(t.Context(), objects(t,
		object(
			"IPPool", "blue-10.0.0.0-24",
			`{"range":"10.0.0.0/24","allocations":{"7":{"id":"c7","podref":"shop/web","ifname":"net1"},"3":{"id":"c3","ipamclaimref":"shop/db"}}}`,
		),
		object("OverlappingRangeIPReservation", "a-fd00-1--2", `{"podref":"shop/api","containerid":"c9","ifname":"net2"}`),
		object("NodeSlicePool", "s", `{"range":"10.1.0.0/16","sliceSize":"/26"}`),
	))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range all.Allocations {
		got = append(got, fmt.Sprintf("%s %q %v for %s claimed %v", a.Addr, a.NetworkName, a.Known, a.Owner, a.Claimed))
	}
	for _, r := range all.Ranges {
		got = append(got, fmt.Sprintf("%s %q %v", r.CIDR, r.NetworkName, r.Known))
	}
	want := []string{
		`10.0.0.3 "blue" true for IPAMClaim shop/db claimed true`,
		`10.0.0.7 "blue" true for shop/web claimed false`,
		`a:fd00:1::2 "" true for shop/api claimed false`,
		`fd00:1::2 "a" true for shop/api claimed false`,
		`1::2 "a-fd00" true for shop/api claimed false`,
		`10.1.0.0/16 "" false`,
		`10.0.0.0/24 "blue" true`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("read (-want +got):\n%s", d)
	}
	var reserved []string
	for _, r := range all.Reserved("blue", []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/29"), netip.MustParsePrefix("fd00::/64"),
	}) {
		reserved = append(reserved, r.Addr.String()+" by "+r.Source)
	}
	if d := cmp.Diff([]string{"10.0.0.3 by whereabouts", "10.0.0.7 by whereabouts"}, reserved); d != "" {
		t.Errorf("reserved of network blue (-want +got):\n%s", d)
	}
}

// TestReadStops: a datastore that does not respond is an error, and not a cluster without whereabouts.
func TestReadStops(t *testing.T) {
	silent := errors.New("no answer")
	_, err := Read(t.Context(), func(context.Context, store.Kind) ([]store.Object, error) { return nil, silent })
	if !errors.Is(err, silent) {
		t.Errorf("error %v, want %v", err, silent)
	}
	if all, err := Read(t.Context(), objects(t)); err != nil || len(all.Allocations)+len(all.Ranges) > 0 {
		t.Errorf("without whereabouts: %+v, error %v", all, err)
	}
}

func TestComplete(t *testing.T) {
	files := map[string]string{
		"/etc/w.conf": `{"range":"10.5.0.0/24","gateway":"10.5.0.1"}`,
		"/etc/cni/net.d/whereabouts.d/whereabouts.conf": `{"range":"10.6.0.0/24"}`,
		"/broken": "{",
	}
	readFile := func(name string) ([]byte, error) {
		if text, is := files[name]; is {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	for _, c := range [][3]string{
		{`{"type":"whereabouts","configuration_path":"/etc/w.conf","gateway":"10.5.0.9"}`, "10.5.0.0/24 10.5.0.9", ""},
		{`{"type":"whereabouts"}`, "10.6.0.0/24 ", ""},
		{`{"type":"weft"}`, " ", ""},
		{
			`{"type":"whereabouts","configuration_path":"/broken"}`, "",
			"whereabouts' configuration file /broken: unexpected end of JSON input",
		},
	} {
		got, err := Complete(json.RawMessage(c[0]), readFile)
		if c[2] != "" {
			if err == nil || !strings.Contains(err.Error(), c[2]) {
				t.Errorf("%s: error %v, want %s", c[0], err, c[2])
			}
			continue
		}
		var has struct{ Range, Gateway string }
		if err != nil || json.Unmarshal(got, &has) != nil || has.Range+" "+has.Gateway != c[1] {
			t.Errorf("%s: %s, error %v, want %q", c[0], got, err, c[1])
		}
	}
}
