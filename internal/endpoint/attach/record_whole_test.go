// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/endpoint/attach"
)

// TestRecordIsStoredWhole: every field of a record is restored from what is stored, so that an agent which keeps the
// record in memory does the same as one that has been started since. Only the text of the network's list is left out.
func TestRecordIsStoredWhole(t *testing.T) {
	var rec attach.Record
	n := 0
	fill(t, reflect.ValueOf(&rec).Elem(), &n)
	rec.Version, rec.Network.Raw = attach.RecordVersion, nil
	rec.Acts[0].Interface.VMInterface.PodLink = "" // hidden by VMInterface.PodLink of attach
	stored, err := attach.Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	back, err := attach.Decode("test", stored)
	if err != nil {
		t.Fatalf("%v: %s", err, stored)
	}
	if diff := cmp.Diff(rec, back, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	if n < 300 {
		t.Errorf("%d values only", n)
	}
}

// fill sets each field to a value of its own.
func fill(t *testing.T, v reflect.Value, n *int) {
	*n++
	addr := netip.AddrFrom4([4]byte{10, byte(*n >> 8), byte(*n), 0})
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(addr))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(addr, 80)))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(addr, 24)))
		return
	case json.RawMessage:
		v.SetBytes([]byte(strconv.Itoa(*n)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, n)
		fill(t, value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text " + strconv.Itoa(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n%100 + 1))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n%100 + 1))
	default:
		t.Fatalf("record has a field of type %s", v.Type())
	}
}
