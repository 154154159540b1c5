// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/weft-net/weft/internal/cluster/store"
)

// FuzzFrames reads whatever a server may send on a watch.
func FuzzFrames(f *testing.F) {
	f.Add(
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d","resourceVersion":"7"},"spec":{"nodeName":"n"}}}`,
	)
	f.Add(
		`{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d"},"status":{"podIP":"nonsense"}}}`,
	)
	f.Add(
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
	)
	f.Add(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`)
	f.Add(`{"type":"DELETED","object":{"metadata":{}}}{"type":"ADDED"}`)
	f.Fuzz(func(t *testing.T, text string) {
		d := frames{
			kind: pods(), body: io.NopCloser(strings.NewReader(text)), dec: json.NewDecoder(strings.NewReader(text)),
			keep: reduceFact,
		}
		s := newObjectCache(pods())
		s.notify, s.synced = func(store.Event) {}, func() {}
		for {
			kind, o, err := d.Decode()
			if err != nil {
				return
			}
			if i, ok := o.(*item); ok && kind != watch.Bookmark {
				s.put(i)
				if got, ok := s.get(i.object.Key); ok && got.Key.Kind != "Pod" {
					t.Errorf("%+v", got.Key)
				}
			}
		}
	})
}

// TestReduce keeps what weft reads and nothing else.
func TestReduce(t *testing.T) {
	o, err := reduceFact(
		[]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"5","managedFields":[{}],
		"annotations":{"weft.dev/a":"1","csi":"x"},"labels":{"l":"1"}},
		"spec":{"podCIDRs":["10.0.0.0/24"],"taints":[{}]},"status":{"images":[{"names":["long"]}],"addresses":[{"type":"InternalIP","address":"10.1.1.1"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"v1","kind":"Node","metadata":{"annotations":{"weft.dev/a":"1"},"labels":{"l":"1"},"name":"n","uid":"u"},` +
		`"spec":{"podCIDRs":["10.0.0.0/24"]},"status":{"addresses":[{"address":"10.1.1.1","type":"InternalIP"}]}}`
	if string(o.Raw) != want {
		t.Errorf("got  %s\nwant %s", o.Raw, want)
	}
}

// TestFaultyObject keeps the last valid version of an object, and reports the error.
func TestFaultyObject(t *testing.T) {
	var reported []store.EventType
	s := newObjectCache(pods())
	s.notify, s.synced = func(e store.Event) { reported = append(reported, e.Type) }, func() {}
	for _, ip := range []string{"10.0.0.1", "nonsense", "nonsense", "10.0.0.1"} {
		i, err := newItem(
			pods(),
			[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d"},"status":{"podIP":"`+ip+`"}}`),
			reduceFact,
		)
		if err != nil {
			t.Fatal(err)
		}
		s.put(i)
	}
	if len(reported) != 2 || reported[0] != store.Added || reported[1] != store.Faulty {
		t.Errorf("%v", reported)
	}
	if o, ok := s.get(store.PodKey("d", "p")); !ok || !strings.Contains(string(o.Raw), "10.0.0.1") {
		t.Errorf("%v %s", ok, o.Raw)
	}
}

// TestReducedAddresses: of pools and blocks what says the ways is kept, and an engine's notes are no news.
func TestReducedAddresses(t *testing.T) {
	for raw, want := range map[string]string{
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"p","uid":"u","generation":7,"managedFields":[{}],"creationTimestamp":"2026-01-02T03:04:05Z",
			"annotations":{"weft.dev/since":"2025-01-01T00:00:00Z","a":"b"}},"spec":{"regions":[{"cidr":"10.1.0.0/16","blockSize":26}],"assignmentMode":"Automatic","natOutgoing":true,"encapsulation":{"kind":"vxlan"},"reserved":[{"address":"10.1.0.1"}]},
			"status":{"conditions":[]}}`: `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"annotations":{"weft.dev/since":"2025-01-01T00:00:00Z"},"creationTimestamp":"2026-01-02T03:04:05Z","name":"p"},"spec":{` +
			`"assignmentMode":"Automatic","encapsulation":{"kind":"vxlan"},"natOutgoing":true,"regions":[{"blockSize":26,"cidr":"10.1.0.0/16"}]}}`,
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":"p-10-1-0-0-26"},"spec":{"pool":"p","cidr":"10.1.0.0/26","node":"n","machine":"m","claim":"3",
			"asked":{"10.1.0.1":"o"},"ceded":{"10.1.0.2":"o/4"}}}`: `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":"p-10-1-0-0-26"},"spec":{` +
			`"ceded":{"10.1.0.2":"o/4"},"cidr":"10.1.0.0/26","claim":"3","node":"n","pool":"p"}}`,
	} {
		o, err := reduceFact([]byte(raw))
		if err != nil || string(o.Raw) != want {
			t.Errorf("%v\n got %s\nwant %s", err, o.Raw, want)
		}
	}
	if _, err := reduceFact([]byte(`{"kind":"AddressBlock","spec":7}`)); err == nil {
		t.Error("nonsense is taken")
	}
}
