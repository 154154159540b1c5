// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"math/rand"
	"reflect"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDeepCopiesShareNothing fills every field, copies, and looks for memory that both have.
func TestDeepCopiesShareNothing(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for _, o := range []runtime.Object{
		&AddressPool{}, &AddressPoolList{}, &AddressBlock{}, &AddressBlockList{},
		&AddressReservation{}, &AddressReservationList{}, &AddressClaim{}, &AddressClaimList{},
		&NodeEndpoints{}, &NodeEndpointsList{}, &AddressMove{}, &AddressMoveList{}, &AddressPoolRequest{},
		&AddressPoolRequestList{}, &FlowListener{}, &FlowListenerList{},
	} {
		for _, field := range []string{"Spec", "Status", "Items"} {
			f := reflect.ValueOf(o).Elem().FieldByName(field)
			if !f.IsValid() {
				continue
			}
			if field == "Items" {
				item := reflect.New(f.Type().Elem()).Elem()
				fill(t, random, item.FieldByName("Spec"))
				f.Set(reflect.Append(f, item))
				continue
			}
			fill(t, random, f)
		}
		c := o.DeepCopyObject()
		if d := cmp.Diff(o, c); d != "" {
			t.Errorf("%T: the copy differs:\n%s", o, d)
		}
		apart(t, reflect.TypeOf(o).String(), reflect.ValueOf(o).Elem(), reflect.ValueOf(c).Elem())
	}
}

func fill(t *testing.T, random *rand.Rand, v reflect.Value) {
	for {
		got, ok := quick.Value(v.Type(), random)
		if !ok {
			t.Fatal("cannot fill ", v.Type())
		}
		full := true
		for i := range got.NumField() {
			full = full && !got.Field(i).IsZero() &&
				(got.Field(i).Kind() != reflect.Slice && got.Field(i).Kind() != reflect.Map || got.Field(i).Len() > 0)
		}
		if full {
			v.Set(got)
			return
		}
	}
}

// apart fails where two values share a slice or a map.
func apart(t *testing.T, path string, a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Slice, reflect.Map:
		if a.Len() > 0 && a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
		}
		if a.Kind() == reflect.Slice {
			for i := range a.Len() {
				apart(t, path+"[]", a.Index(i), b.Index(i))
			}
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() {
				apart(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
			}
		}
	}
}
