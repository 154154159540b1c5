// SPDX-License-Identifier: Apache-2.0

package bpfcode_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/bpfcode"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// layout returns the kernel's.
func layout(t *testing.T, module string) *bpfcode.Layout {
	t.Helper()
	l, err := bpfcode.ReadLayout(module)
	if err != nil {
		nettest.Skip(t, err.Error())
	}
	return l
}

// Fields are found through structures, arrays, unions and structures without a name, and in a module.
func TestOffset(t *testing.T) {
	l := layout(t, "nf_conntrack")
	hash, tuple := l.Offset("nf_conn", "tuplehash"), l.Offset("nf_conntrack_tuple_hash", "tuple")
	if got := l.Offset("nf_conn", "tuplehash", "tuple"); hash == 0 || tuple == 0 || got != hash+tuple {
		t.Errorf("the first tuple is at %d, the array at %d, the tuple in an element at %d", got, hash, tuple)
	}
	src, dst := l.Offset("nf_conntrack_tuple", "src", "u3", "ip"), l.Offset("nf_conntrack_tuple", "dst", "u3", "ip")
	if size := l.Size("nf_conntrack_tuple"); src != 0 || dst < 16 || size < dst+16 {
		t.Errorf("source at %d, destination at %d of %d bytes", src, dst, size)
	}
	if at := l.Offset("sk_buff", "dev"); at == 0 { // in a union of structures without names
		t.Error("the device is at the beginning of a packet")
	}
	if n := l.Value("nf_ct_ext_id", "NF_CT_EXT_NUM"); n == 0 {
		t.Error("there are no extensions")
	}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
}

// All that is missing is named.
func TestMissing(t *testing.T) {
	l := layout(t, "")
	l.Offset("weft_unknown", "field")
	l.Offset("sk_buff", "weft_field")
	l.Offset("net", "ns", "weft_inner")
	l.Size("weft_size")
	l.Value("skb_drop_reason", "WEFT_REASON")
	err := l.Err()
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, name := range []string{"weft_unknown", "weft_field", "weft_inner", "weft_size", "WEFT_REASON"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v: without %s", err, name)
		}
	}
}
