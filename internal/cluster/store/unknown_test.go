// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"
)

// TestUnknownFieldsAreKept: an object of a later version keeps what this one does not know when this one changes it, also
// inside of lists that it writes.
func TestUnknownFieldsAreKept(t *testing.T) {
	const unknown = `"later":{"a":[1]}`
	for _, c := range []struct {
		text string
		want int // how often the unknown field is left
		edit func(Object) (Object, error)
	}{
		{
			`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"p",U},"spec":{U,"regions":[` +
				`{"cidr":"10.0.0.0/16",U},{"cidr":"10.1.0.0/16",U}],"encapsulation":{"kind":"vxlan",U},"reserved":[` +
				`{"address":"10.0.0.9","for":"a",U}],"excluded":[{"cidr":"10.0.0.0/31",U}]},"status":{U}}`, 7, // without 10.1.0.0/16's
			func(o Object) (Object, error) {
				p, err := o.AddressPool()
				if err != nil {
					return o, err
				}
				p.Regions, p.Cooldown, p.Reserved[0].Owner = p.Regions[:1], 7, "b"
				return AddressPoolObject(o, p)
			},
		},
		{
			`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":"p-10-0-0-0-26",U},"spec":{U,` +
				`"pool":"p","cidr":"10.0.0.0/26","node":"n1","claim":"c"}}`, 2,
			func(o Object) (Object, error) {
				b, err := o.AddressBlock()
				if err != nil {
					return o, err
				}
				b.Node = "n2"
				return AddressBlockObject(o, b)
			},
		},
		{
			`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressMove","metadata":{"name":"m","namespace":"a",U},"spec":{U,` +
				`"machine":"vm","addresses":["10.0.0.1"],"target":"n2"}}`, 2,
			func(o Object) (Object, error) {
				m, err := o.AddressMove()
				if err != nil {
					return o, err
				}
				m.Source = "n1"
				return AddressMoveObject(o, m)
			},
		},
	} {
		o, err := NewObject([]byte(strings.ReplaceAll(c.text, "U", unknown)))
		if err != nil {
			t.Fatal(err)
		}
		next, err := c.edit(o)
		if err != nil {
			t.Fatal(err)
		}
		if next.Version == o.Version {
			t.Errorf("%s: the edit changed nothing", o.Key)
		}
		if n := strings.Count(string(next.Raw), unknown); n != c.want {
			t.Errorf("%s: the unknown field is there %d times, want %d:\n%s", o.Key, n, c.want, next.Raw)
		}
	}
}
